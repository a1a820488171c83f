// The adjoints of a convolution as matrix products over all pixels of the batch. The matrix of patches has a row for
// each output pixel with its taps in the order of the weight's memory (channel, then tap), so that the weight is used
// as it lies: dw = dyᵀ · patches, and dx is what dy · w adds up to.
#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
using DI = hn::RebindToSigned<DF>;

// Patches of the output pixels [b, e), rows of c * kh * kw.
void patches(const ConvGeom& g, const float* x, int64_t b, int64_t e, float* to) {
  const DF d;
  const DI di;
  const int64_t taps = g.kh * g.kw, length = g.c * taps, pitch = g.c + kLanes;
  float* pixels = scratch(Scratch::Planes, taps * pitch + kLanes);  // [tap][channel] of one patch
  auto* from = reinterpret_cast<int32_t*>(scratch(Scratch::Col, length + kLanes));
  for (int64_t c = 0, i = 0; c < g.c; ++c)
    for (int64_t t = 0; t < taps; ++t) from[i++] = static_cast<int32_t>(t * pitch + c);
  for (int64_t i = 0; i < kLanes; ++i) from[length + i] = 0;
  for (; b < e; ++b, to += length) {
    const int64_t n = b / (g.oh * g.ow), oy = b / g.ow % g.oh, ox = b % g.ow;
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s) {
        const int64_t iy = oy * g.sh - g.ph + r * g.dh, ix = ox * g.sw - g.pw + s * g.dw;
        float* tap = pixels + (r * g.kw + s) * pitch;
        if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w)
          std::fill_n(tap, g.c, 0.f);
        else
          copy_n(x + ((n * g.h + iy) * g.w + ix) * g.c, g.c, tap);
      }
    int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes)
      hn::StoreU(hn::GatherIndex(d, pixels, hn::LoadU(di, from + i)), d, to + i);
    for (; i < length; ++i) to[i] = pixels[from[i]];
  }
}

// dx of the input pixels [b, e) from dy · w; each pixel adds its taps in order.
void add_patches(const ConvGeom& g, const float* products, int64_t b, int64_t e, float* dx) {
  const DF d;
  const DI di;
  const int64_t taps = g.kh * g.kw, length = g.c * taps, whole = g.c / kLanes * kLanes;
  HWY_ALIGN int32_t steps[kLanes];
  for (int i = 0; i < kLanes; ++i) steps[i] = static_cast<int32_t>(i * taps);
  const auto index = hn::Load(di, steps);
  for (; b < e; ++b) {
    const int64_t n = b / (g.h * g.w), iy = b / g.w % g.h, ix = b % g.w;
    float* to = dx + b * g.c;
    std::fill_n(to, g.c, 0.f);
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s) {
        const int64_t ty = iy + g.ph - r * g.dh, tx = ix + g.pw - s * g.dw;
        if (ty < 0 || tx < 0 || ty % g.sh || tx % g.sw || ty / g.sh >= g.oh || tx / g.sw >= g.ow) continue;
        const float* row = products + ((n * g.oh + ty / g.sh) * g.ow + tx / g.sw) * length + r * g.kw + s;
        for (int64_t c = 0; c < whole; c += kLanes)
          hn::StoreU(hn::Add(hn::LoadU(d, to + c), hn::GatherIndex(d, row + c * taps, index)), d, to + c);
        for (int64_t c = whole; c < g.c; ++c) to[c] += row[c * taps];
      }
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(patches);
HWY_EXPORT(add_patches);

bool is_pointwise(const ConvGeom& g) { return g.kh * g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0; }

}  // namespace

void product_last_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const int64_t pixels = g.n * g.oh * g.ow, length = g.c * g.kh * g.kw;
  if (is_pointwise(g)) return sgemm(false, false, pixels, length, g.o, dy, g.o, wt, length, dx, length, false);
  float* products = scratch(Scratch::Partial, pixels * length);
  sgemm(false, false, pixels, length, g.o, dy, g.o, wt, length, products, length, false);
  parallel_for(g.n * g.h * g.w, value_grain(length), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(add_patches)(g, products, b, e, dx);
  });
}

void product_last_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const int64_t pixels = g.n * g.oh * g.ow, length = g.c * g.kh * g.kw;
  if (is_pointwise(g)) return sgemm(true, false, g.o, length, pixels, dy, g.o, x, length, dw, length, false);
  // As many pixels as the product takes at a time: all patches would be as large as the image times the taps.
  constexpr int64_t kTogether = 512;
  float* rows = scratch(Scratch::Partial, std::min(pixels, kTogether) * length);
  for (int64_t at = 0; at < pixels; at += kTogether) {
    const int64_t count = std::min(kTogether, pixels - at);
    parallel_for(count, value_grain(length), [&](int64_t b, int64_t e) {
      HWY_DYNAMIC_DISPATCH(patches)(g, x, at + b, at + e, rows + b * length);
    });
    sgemm(true, false, g.o, length, count, dy + at * g.o, g.o, rows, length, dw, length, at > 0);
  }
}

}  // namespace mge::simd
#endif
