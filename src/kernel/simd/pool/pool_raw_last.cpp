// Pooling of channels-last images: vectors run along channels. Every join and sum is taken in the order of pool_raw.cpp
// (rows of a window column by column, padded columns as identities, then columns), so that the bits agree.
#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/pool/pool_raw.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/pool/pool_raw_last.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

using Geom = simd::Pool2dGeom;

struct Max {
  static constexpr float identity = -std::numeric_limits<float>::infinity();
  static HWY_INLINE VF join(VF best, VF v) { return hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best); }
};
struct Sum {
  static constexpr float identity = 0.f;
  static HWY_INLINE VF join(VF sum, VF v) { return hn::Add(sum, v); }
};

// The rows or columns of the image that window `o` covers.
struct Span {
  int64_t begin, end;
  Span(int64_t o, int64_t stride, int64_t pad, int64_t kernel, int64_t size)
      : begin(std::min(size, std::max<int64_t>(0, o * stride - pad))),
        end(std::max(begin, std::min(size, o * stride - pad + kernel))) {}
  int64_t count() const { return end - begin; }
};
inline bool is_2x2(const Geom& g) { return g.kh == 2 && g.kw == 2 && g.sh == 2 && g.sw == 2 && g.ph == 0 && g.pw == 0; }
inline float divisor(const Geom& g, bool whole, int64_t oy, int64_t ox) {
  auto count = [&](int64_t k, const Span& s) {
    return static_cast<float>(whole ? k : std::max<int64_t>(1, s.count()));
  };
  return count(g.kw, Span(ox, g.sw, g.pw, g.kw, g.w)) * count(g.kh, Span(oy, g.sh, g.ph, g.kh, g.h));
}

// Rows [b, e) of the outputs of all images. finish(value, oy, ox)
template <class Op, class Finish>
void pool_rows(const Geom& g, int64_t c, const float* x, float* y, int64_t b, int64_t e, Finish finish) {
  for (; b < e; ++b) {
    const int64_t n = b / g.oh, oy = b % g.oh;
    const Span rows(oy, g.sh, g.ph, g.kh, g.h);
    for (int64_t ox = 0; ox < g.ow; ++ox) {
      float* to = y + (b * g.ow + ox) * c;
      each_vector(c, [&](int64_t i, int k) {
        auto column = [&](int64_t s) {
          const int64_t ix = ox * g.sw + s - g.pw;
          if (ix < 0 || ix >= g.w || rows.count() == 0) return set(Op::identity);
          const float* p = x + ((n * g.h + rows.begin) * g.w + ix) * c + i;
          VF v = load_n(p, k);
          for (int64_t r = rows.begin + 1; r < rows.end; ++r) v = Op::join(v, load_n(p += g.w * c, k));
          return v;
        };
        VF v = column(0);
        for (int64_t s = 1; s < g.kw; ++s) v = Op::join(v, column(s));
        store_n(finish(v, oy, ox), to + i, k);
      });
    }
  }
}

inline int64_t row_grain(const Geom& g, int64_t c) { return grain_for(g.ow * c * g.kh * g.kw / 2 + 1); }
template <class Op, class Finish>
void pool_last(const Geom& g, int64_t c, const float* x, float* y, Finish finish) {
  parallel_for(g.planes / c * g.oh, row_grain(g, c),
               [&](int64_t b, int64_t e) { pool_rows<Op>(g, c, x, y, b, e, finish); });
}

// Max::join where neither is NaN.
HWY_INLINE VF larger(VF best, VF v) {
#if HWY_ARCH_X86  // MAXPS is v > best ? v : best
  return hn::Max(v, best);
#else
  return hn::IfThenElse(hn::Gt(v, best), v, best);
#endif
}

// One vector of channels along a row of outputs, x at the first row of its windows: a column is read once for the
// windows that share it. False: there was a NaN, or infinities, and nothing that was written counts.
template <int kRows>
bool max_walk(const Geom& g, int64_t c, const float* HWY_RESTRICT x, int k, float* HWY_RESTRICT y) {
  const VF none = set(Max::identity);
  VF sum = hn::Zero(DF());
  auto column = [&](int64_t ix) HWY_ATTR {
    if (ix < 0 || ix >= g.w) return none;
    const float* HWY_RESTRICT p = x + ix * c;
    VF v = load_n(p, k);
    sum = hn::Add(sum, v);
#pragma GCC unroll 2
    for (int r = 1; r < kRows; ++r) {
      const VF u = load_n(p + r * g.w * c, k);
      sum = hn::Add(sum, u);
      v = larger(v, u);
    }
    return v;
  };
  const bool shared = g.kw == g.sw + 1;  // by two neighbours
  VF last = none;
  for (int64_t ox = 0; ox < g.ow; ++ox) {
    const int64_t first = ox * g.sw - g.pw;
    VF v = shared && ox > 0 ? last : column(first);
    for (int64_t s = 1; s < g.kw; ++s) v = larger(v, last = column(first + s));
    store_n(v, y + ox * c, k);
  }
  return hn::AllFalse(DF(), hn::IsNaN(sum));
}

void max_rows_last(const Geom& g, int64_t c, const float* x, float* y, int64_t b, int64_t e) {
  auto same = [](VF v, int64_t, int64_t) { return v; };
  for (; b < e; ++b) {
    const Span rows(b % g.oh, g.sh, g.ph, g.kh, g.h);
    const auto walk = rows.count() == 3 ? max_walk<3> : rows.count() == 2 ? max_walk<2> : nullptr;
    bool whole = walk != nullptr;
    if (whole)
      each_vector(c, [&](int64_t i, int k) {
        whole = whole && walk(g, c, x + (b / g.oh * g.h + rows.begin) * g.w * c + i, k, y + b * g.ow * c + i);
      });
    if (!whole) pool_rows<Max>(g, c, x, y, b, b + 1, same);
  }
}
void max_fwd_last(const Geom& g, int64_t c, const float* x, float* y) {
  parallel_for(g.planes / c * g.oh, row_grain(g, c), [&](int64_t b, int64_t e) { max_rows_last(g, c, x, y, b, e); });
}
void avg_fwd_last(const Geom& g, int64_t c, const float* x, float* y, bool whole) {
  if (is_2x2(g)) return pool_last<Sum>(g, c, x, y, [](VF v, int64_t, int64_t) { return hn::Mul(v, set(0.25f)); });
  pool_last<Sum>(g, c, x, y, [&](VF v, int64_t oy, int64_t ox) { return hn::Div(v, set(divisor(g, whole, oy, ox))); });
}

// Images and slices of channels are independent; windows of one go in order, because they may overlap.
template <class F>
void each_slice(const Geom& g, int64_t c, F f) {
  const int64_t images = g.planes / c;
  // No more slices than threads ask for: whole pixels are kinder to the cache. Bits do not depend on it.
  const int64_t wanted = images >= num_threads() ? 1 : (num_threads() + images - 1) / images;
  const int64_t slices = std::min<int64_t>((c + 15) / 16, wanted);
  const int64_t width = ((c + slices - 1) / slices + 15) / 16 * 16;
  parallel_for(images * slices, grain_for(g.h * g.w * width), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const int64_t from = b % slices * width;
      if (from < c) f(b / slices, from, std::min(width, c - from));
    }
  });
}

void max_bwd_last(const Geom& g, int64_t c, const float* x, const float* y, const float* dy, float* dx) {
  const bool apart = is_2x2(g);  // windows do not overlap: the gradient itself, also a negative zero
  each_slice(g, c, [&](int64_t n, int64_t c0, int64_t cn) {
    for (int64_t q = 0; q < g.h * g.w; ++q) std::fill_n(dx + (n * g.h * g.w + q) * c + c0, cn, 0.f);
    for (int64_t oy = 0; oy < g.oh; ++oy) {
      const Span rows(oy, g.sh, g.ph, g.kh, g.h);
      for (int64_t ox = 0; ox < g.ow; ++ox) {
        const Span cols(ox, g.sw, g.pw, g.kw, g.w);
        const int64_t at = ((n * g.oh + oy) * g.ow + ox) * c + c0;
        each_vector(cn, [&](int64_t i, int k) {
          const VF best = load_n(y + at + i, k);
          VF left = load_n(dy + at + i, k);  // what no earlier pixel has taken
          auto taken = hn::MaskFromVec(hn::Zero(DF()));
          for (int64_t r = rows.begin; r < rows.end; ++r)
            for (int64_t s = cols.begin; s < cols.end; ++s) {
              const int64_t p = ((n * g.h + r) * g.w + s) * c + c0 + i;
              const VF v = load_n(x + p, k);
              const auto hit = hn::AndNot(taken, hn::Or(hn::Eq(v, best), hn::And(hn::IsNaN(v), hn::IsNaN(best))));
              taken = hn::Or(taken, hit);
              const VF part = hn::IfThenElseZero(hit, left);
              store_n(apart ? part : hn::Add(load_n(dx + p, k), part), dx + p, k);
            }
        });
      }
    }
  });
}

void avg_bwd_last(const Geom& g, int64_t c, const float* dy, float* dx, bool whole) {
  const bool apart = is_2x2(g);
  const int64_t width = std::max(g.w + g.pw, (g.ow - 1) * g.sw + g.kw);
  each_slice(g, c, [&](int64_t n, int64_t c0, int64_t cn) {
    float* image = dx + n * g.h * g.w * c + c0;
    for (int64_t q = 0; q < g.h * g.w; ++q) std::fill_n(image + q * c, cn, 0.f);
    float* line = simd::scratch(simd::Scratch::Planes, width * cn);
    for (int64_t oy = 0; oy < g.oh; ++oy) {
      const Span rows(oy, g.sh, g.ph, g.kh, g.h);
      std::fill_n(line, width * cn, 0.f);
      for (int64_t s = 0; s < g.kw; ++s)
        for (int64_t ox = 0; ox < g.ow; ++ox) {
          const float* from = dy + ((n * g.oh + oy) * g.ow + ox) * c + c0;
          float* to = line + (ox * g.sw + s) * cn;
          const VF by = set(divisor(g, whole, oy, ox));
          each_vector(cn, [&](int64_t i, int k) {
            const VF share = hn::Div(load_n(from + i, k), by);
            store_n(apart ? share : hn::Add(load_n(to + i, k), share), to + i, k);
          });
        }
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t q = 0; q < g.w; ++q) {
          float* to = image + (r * g.w + q) * c;
          const float* from = line + (q + g.pw) * cn;
          each_vector(cn, [&](int64_t i, int k) {
            const VF v = load_n(from + i, k);
            store_n(apart ? v : hn::Add(load_n(to + i, k), v), to + i, k);
          });
        }
    }
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {
HWY_EXPORT(max_fwd_last);
HWY_EXPORT(max_rows_last);
HWY_EXPORT(max_bwd_last);
HWY_EXPORT(avg_fwd_last);
HWY_EXPORT(avg_bwd_last);

namespace {
bool empty(const simd::Pool2dGeom& g) { return g.planes == 0 || g.oh <= 0 || g.ow <= 0; }
}  // namespace

void max_fwd_any(const simd::Pool2dGeom& g, int64_t c, const float* x, float* y) {
  HWY_DYNAMIC_DISPATCH(max_fwd_last)(g, c, x, y);
}
void max_rows_any(const simd::Pool2dGeom& g, int64_t c, const float* x, float* y, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(max_rows_last)(g, c, x, y, first, last);
}
void max_bwd_any(const simd::Pool2dGeom& g, int64_t c, const float* x, const float* y, const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(max_bwd_last)(g, c, x, y, dy, dx);
}
void avg_fwd_any(const simd::Pool2dGeom& g, int64_t c, const float* x, float* y, bool whole) {
  HWY_DYNAMIC_DISPATCH(avg_fwd_last)(g, c, x, y, whole);
}
void avg_bwd_any(const simd::Pool2dGeom& g, int64_t c, const float* dy, float* dx, bool whole) {
  HWY_DYNAMIC_DISPATCH(avg_bwd_last)(g, c, dy, dx, whole);
}
}  // namespace mge::simd_nn

namespace mge::simd {

void max_pool2d_fwd_last(const Pool2dGeom& g, int64_t c, const float* x, float* y) {
  if (!simd_nn::empty(g)) simd_nn::max_fwd_any(g, c, x, y);
}
void max_pool2d_last_rows(const Pool2dGeom& g, int64_t c, const float* x, float* y, int64_t first, int64_t last) {
  if (!simd_nn::empty(g)) simd_nn::max_rows_any(g, c, x, y, first, last);
}
void max_pool2d_bwd_last(const Pool2dGeom& g, int64_t c, const float* x, const float* y, const float* dy, float* dx) {
  if (simd_nn::empty(g))
    std::fill_n(dx, g.planes * g.h * g.w, 0.f);
  else
    simd_nn::max_bwd_any(g, c, x, y, dy, dx);
}
void avg_pool2d_fwd_last(const Pool2dGeom& g, int64_t c, const float* x, float* y, bool whole) {
  if (!simd_nn::empty(g)) simd_nn::avg_fwd_any(g, c, x, y, whole);
}
void avg_pool2d_bwd_last(const Pool2dGeom& g, int64_t c, const float* dy, float* dx, bool whole) {
  if (simd_nn::empty(g))
    std::fill_n(dx, g.planes * g.h * g.w, 0.f);
  else
    simd_nn::avg_bwd_any(g, c, dy, dx, whole);
}

}  // namespace mge::simd
#endif
