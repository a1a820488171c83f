// Zero-padded copies of a few input planes, and the epilogue; once per instruction set.
//
// In a padded copy every tap of every output pixel is a plain address: at(oy, ox) + offset[tap], with consecutive ox at
// consecutive addresses, because columns are split by their phase modulo the horizontal stride. No kernel below tests
// borders.
#if defined(MGE_CONV2D_RAW_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_CONV2D_RAW_PLANES_INL_H_
#undef MGE_CONV2D_RAW_PLANES_INL_H_
#else
#define MGE_CONV2D_RAW_PLANES_INL_H_
#endif

#include <cstring>

#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Padded planes for the output rows [oy0, oy1) of one image.
struct Planes {
  const ConvGeom& g;
  int64_t oy0, rows, pitch, plane;

  Planes(const ConvGeom& geom, int64_t oy_begin, int64_t oy_end) : g(geom), oy0(oy_begin) {
    rows = (oy_end - oy_begin - 1) * g.sh + (g.kh - 1) * g.dh + 1;
    pitch = ((g.ow - 1) * g.sw + (g.kw - 1) * g.dw) / g.sw + 1;
    plane = g.sw * rows * pitch;
  }
  // Floats for `channels` planes; kernels may read (not use) a few vectors past the end.
  int64_t size(int64_t channels) const { return channels * plane + 4 * kNR; }
  int64_t at(int64_t oy) const { return (oy - oy0) * g.sh * pitch; }
  int64_t offset(int64_t c, int64_t r, int64_t s) const {
    return c * plane + (s * g.dw % g.sw * rows + r * g.dh) * pitch + s * g.dw / g.sw;
  }
  void offsets(int64_t channels, int64_t* dst) const {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t r = 0; r < g.kh; ++r)
        for (int64_t s = 0; s < g.kw; ++s) *dst++ = offset(c, r, s);
  }

  // x: first of the planes in the image.
  void fill(const float* x, int64_t channels, float* dst) const {
    for (int64_t c = 0; c < channels; ++c) fill_plane(x + c * g.h * g.w, dst + c * plane);
    std::memset(dst + channels * plane, 0, 4 * kNR * sizeof(float));
  }
  // Adds nothing, copies: the inside of the padded planes back to an image. Pixels no tap reaches become 0.
  void unfill(const float* src, int64_t channels, float* x) const {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < g.h; ++y) {
        float* HWY_RESTRICT to = x + (c * g.h + y) * g.w;
        const int64_t row = y + g.ph - oy0 * g.sh;
        if (row < 0 || row >= rows) {
          std::memset(to, 0, g.w * sizeof(float));
          continue;
        }
        for (int64_t q = 0; q < g.sw; ++q) {
          const float* HWY_RESTRICT from = src + c * plane + (q * rows + row) * pitch;
          int64_t begin, end;
          columns(q, &begin, &end);
          if (g.sw == 1) {
            const int64_t left = begin - g.pw;
            for (int64_t i = 0; i < left; ++i) to[i] = 0.f;
            copy_n(from + begin, end - begin, to + left);
            for (int64_t i = left + std::max<int64_t>(end - begin, 0); i < g.w; ++i) to[i] = 0.f;
          } else {
            if (q == 0) std::memset(to, 0, g.w * sizeof(float));
            for (int64_t j = begin; j < end; ++j) to[j * g.sw + q - g.pw] = from[j];
          }
        }
      }
  }

 private:
  // Columns j of phase q with 0 <= j*sw + q - pw < w.
  void columns(int64_t q, int64_t* begin, int64_t* end) const {
    *begin = std::min(pitch, std::max<int64_t>(0, (g.pw - q + g.sw - 1) / g.sw));
    *end = g.w + g.pw - q <= 0 ? 0 : std::min(pitch, (g.w + g.pw - q + g.sw - 1) / g.sw);
    *end = std::max(*begin, *end);
  }
  void fill_plane(const float* HWY_RESTRICT x, float* HWY_RESTRICT dst) const {
    for (int64_t q = 0; q < g.sw; ++q) {
      int64_t begin, end;
      columns(q, &begin, &end);
      for (int64_t row = 0; row < rows; ++row, dst += pitch) {
        const int64_t y = row + oy0 * g.sh - g.ph;
        if (y < 0 || y >= g.h) {
          std::memset(dst, 0, pitch * sizeof(float));
          continue;
        }
        const float* HWY_RESTRICT from = x + y * g.w;
        for (int64_t j = 0; j < begin; ++j) dst[j] = 0.f;
        if (g.sw == 1) {
          copy_n(from + begin - g.pw, end - begin, dst + begin);
        } else {
          int64_t j = begin;
          // Every second column; what lies between them is loaded, too, up to the last one.
          if (g.sw == 2)
            for (; j + kLanes < end; j += kLanes) {
              VF even, odd;
              hn::LoadInterleaved2(DF(), from + j * 2 + q - g.pw, even, odd);
              hn::StoreU(even, DF(), dst + j);
            }
          for (; j < end; ++j) dst[j] = from[j * g.sw + q - g.pw];
        }
        for (int64_t j = end; j < pitch; ++j) dst[j] = 0.f;
      }
    }
  }
};

// The epilogue on y[index, index+len) of channel c; see conv2d_raw.h for the steps.
HWY_NOINLINE inline void apply_epilogue(const Epilogue& e, int64_t c, int64_t index, int64_t len,
                                        float* HWY_RESTRICT y) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF bias = hn::Set(d, e.bias ? e.bias[c] : 0.f);
  const VF scale = hn::Set(d, e.scale ? e.scale[c] : 1.f), shift = hn::Set(d, e.scale ? e.shift[c] : 0.f);
  for (int64_t i = 0; i < len; i += kLanes) {
    const int n = static_cast<int>(std::min<int64_t>(kLanes, len - i));
    const MF m = hn::FirstN(d, n);
    VF v = load_n(m, y + index + i, n);
    if (e.bias) v = hn::Add(v, bias);
    if (e.scale) v = hn::Add(hn::Mul(v, scale), shift);
    if (e.add) v = hn::Add(v, load_n(m, e.add + index + i, n));
    if (e.act == 2) v = hn::IfThenElse(hn::Gt(v, hn::Set(DF(), 6.f)), hn::Set(DF(), 6.f), v);
    if (e.act) v = hn::IfThenElseZero(hn::Or(hn::Gt(v, zero), hn::IsNaN(v)), v);
    store_n(v, m, y + index + i, n);
  }
  e.finish(y + index, len);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
