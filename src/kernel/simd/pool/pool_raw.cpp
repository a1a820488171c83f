#include "kernel/simd/pool/pool_raw.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/pool/pool_raw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

struct MaxOp {
  static constexpr float identity = kMinusInf;
  // Keeps the first of equals; a NaN wins and stays.
  template <class V>
  static HWY_INLINE V join(V best, V v) {
    return hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best);
  }
};
struct SumOp {
  static constexpr float identity = 0.f;
  template <class V>
  static HWY_INLINE V join(V sum, V v) {
    return hn::Add(sum, v);
  }
};

// A range of rows or columns of the image that window `o` covers.
struct Span {
  int64_t begin, end;
  Span(int64_t o, int64_t stride, int64_t pad, int64_t kernel, int64_t size)
      : begin(std::min(size, std::max<int64_t>(0, o * stride - pad))),
        end(std::max(begin, std::min(size, o * stride - pad + kernel))) {}
  int64_t count() const { return end - begin; }
};

inline bool is_2x2(const Pool2dGeom& g) {
  return g.kh == 2 && g.kw == 2 && g.sh == 2 && g.sw == 2 && g.ph == 0 && g.pw == 0;
}
inline int64_t plane_grain(const Pool2dGeom& g) { return value_grain(g.h * g.w); }

// The even and odd elements of p[0..2n).
HWY_INLINE void load_pairs(const float* HWY_RESTRICT p, int n, VF* even, VF* odd) {
  const DF d;
  VF lo, hi;
  if (n == kLanes) {
    lo = hn::LoadU(d, p), hi = hn::LoadU(d, p + kLanes);
  } else {
    const int a = std::min(2 * n, kLanes), b = 2 * n - a;
    lo = load_n(hn::FirstN(d, a), p, a), hi = load_n(hn::FirstN(d, b), p + kLanes, b);
  }
  *even = hn::ConcatEven(d, hi, lo), *odd = hn::ConcatOdd(d, hi, lo);
}
HWY_INLINE void store_pairs(VF even, VF odd, float* HWY_RESTRICT p, int n) {
  const DF d;
  if (n == kLanes) return hn::StoreInterleaved2(even, odd, d, p);
  HWY_ALIGN float tmp[2 * kLanes];
  hn::StoreInterleaved2(even, odd, d, tmp);
  copy_n(tmp, 2 * n, p);
}

// y = scale * (join of each 2x2 window), columns of the window joined first like the general path does.
template <class Op>
void pool_2x2(const Pool2dGeom& g, const float* x, float* y, float scale) {
  const DF d;
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const float* HWY_RESTRICT row = x + (p * g.h + 2 * oy) * g.w;
        for (int64_t ox = 0; ox < g.ow; ox += kLanes) {
          const int n = static_cast<int>(std::min<int64_t>(kLanes, g.ow - ox));
          VF e0, o0, e1, o1;
          load_pairs(row + 2 * ox, n, &e0, &o0);
          load_pairs(row + g.w + 2 * ox, n, &e1, &o1);
          VF v = Op::join(Op::join(e0, e1), Op::join(o0, o1));
          if (scale != 1.f) v = hn::Mul(v, hn::Set(d, scale));
          store_n(v, hn::FirstN(d, n), y + (p * g.oh + oy) * g.ow + ox, n);
        }
      }
  });
}

// Any window: rows joined first, into one padded line split by column phase, then shifted lines joined.
// finish(line of ow values, oy) turns the joined values into outputs.
template <class Op, class Finish>
void pool_any(const Pool2dGeom& g, const float* x, float* y, Finish finish) {
  const DF d;
  const int64_t pitch = ((g.ow - 1) * g.sw + g.kw - 1) / g.sw + 1 + kLanes,
                width = std::max(g.w + g.pw, pitch * g.sw) + kLanes;
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    float* line = scratch(Scratch::Planes, width + pitch * g.sw);
    float* phases = g.sw == 1 ? line : line + width;
    for (int64_t p = begin; p < end; ++p)
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const Span rows(oy, g.sh, g.ph, g.kh, g.h);
        std::fill_n(line, g.pw, Op::identity);
        std::fill_n(line + g.pw, width - g.pw, Op::identity);
        const float* HWY_RESTRICT src = x + p * g.h * g.w;
        for (int64_t i = 0; i < g.w && rows.count() > 0; i += kLanes) {
          const int n = static_cast<int>(std::min<int64_t>(kLanes, g.w - i));
          const MF m = hn::FirstN(d, n);
          VF v = load_n(m, src + rows.begin * g.w + i, n);
          for (int64_t r = rows.begin + 1; r < rows.end; ++r) v = Op::join(v, load_n(m, src + r * g.w + i, n));
          store_n(v, m, line + g.pw + i, n);
        }
        if (g.sw > 1)
          for (int64_t q = 0; q < g.sw; ++q)
            for (int64_t j = 0; j < pitch; ++j) phases[q * pitch + j] = line[j * g.sw + q];
        float* out = y + (p * g.oh + oy) * g.ow;
        for (int64_t ox = 0; ox < g.ow; ox += kLanes) {
          const int n = static_cast<int>(std::min<int64_t>(kLanes, g.ow - ox));
          VF v = hn::LoadU(d, phases + ox);
          for (int64_t s = 1; s < g.kw; ++s) v = Op::join(v, hn::LoadU(d, phases + s % g.sw * pitch + s / g.sw + ox));
          store_n(v, hn::FirstN(d, n), out + ox, n);
        }
        finish(out, oy);
      }
  });
}

// One window that is the image: columns joined as above, and no line around them.
inline bool is_whole(const Pool2dGeom& g) {
  return g.oh == 1 && g.ow == 1 && g.ph == 0 && g.pw == 0 && g.kh == g.h && g.kw == g.w;
}
template <class Op>
void pool_whole(const Pool2dGeom& g, const float* x, float* y, float divisor) {
  const hn::CappedTag<float, 1> one;
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    HWY_ALIGN float columns[kLanes];
    for (int64_t p = begin; p < end; ++p) {
      auto v = hn::Set(one, Op::identity);
      for (int64_t i = 0; i < g.w; i += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, g.w - i));
        const MF m = hn::FirstN(DF(), n);
        const float* HWY_RESTRICT column = x + p * g.h * g.w + i;
        VF rows = load_n(m, column, n);
        for (int64_t r = 1; r < g.h; ++r) rows = Op::join(rows, load_n(m, column + r * g.w, n));
        hn::Store(rows, DF(), columns);
        for (int s = 0; s < n; ++s) {
          const auto c = hn::Set(one, columns[s]);
          v = i + s == 0 ? c : Op::join(v, c);
        }
      }
      y[p] = hn::GetLane(v) / divisor;
    }
  });
}

void max_fwd(const Pool2dGeom& g, const float* x, float* y) {
  if (is_2x2(g)) return pool_2x2<MaxOp>(g, x, y, 1.f);
  if (is_whole(g)) return pool_whole<MaxOp>(g, x, y, 1.f);
  pool_any<MaxOp>(g, x, y, [](float*, int64_t) {});
}

HWY_INLINE MF same(VF x, VF y) { return hn::Or(hn::Eq(x, y), hn::And(hn::IsNaN(x), hn::IsNaN(y))); }

// Zeroes what 2x2 windows do not cover: an odd last row or column.
inline void zero_rest_2x2(const Pool2dGeom& g, float* plane) {
  if (2 * g.ow < g.w)
    for (int64_t r = 0; r < 2 * g.oh; ++r) std::fill_n(plane + r * g.w + 2 * g.ow, g.w - 2 * g.ow, 0.f);
  std::fill_n(plane + 2 * g.oh * g.w, (g.h - 2 * g.oh) * g.w, 0.f);
}

void max_bwd_2x2(const Pool2dGeom& g, const float* x, const float* y, const float* dy, float* dx) {
  const DF d;
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const int64_t top = (p * g.h + 2 * oy) * g.w, out = (p * g.oh + oy) * g.ow;
        for (int64_t ox = 0; ox < g.ow; ox += kLanes) {
          const int n = static_cast<int>(std::min<int64_t>(kLanes, g.ow - ox));
          const MF m = hn::FirstN(d, n);
          VF x00, x01, x10, x11;
          load_pairs(x + top + 2 * ox, n, &x00, &x01);
          load_pairs(x + top + g.w + 2 * ox, n, &x10, &x11);
          const VF best = load_n(m, y + out + ox, n);
          VF left = load_n(m, dy + out + ox, n);  // what no earlier pixel has taken
          const MF m00 = same(x00, best), m01 = same(x01, best), m10 = same(x10, best);
          const VF d00 = hn::IfThenElseZero(m00, left);
          left = hn::IfThenZeroElse(m00, left);
          const VF d01 = hn::IfThenElseZero(m01, left);
          left = hn::IfThenZeroElse(m01, left);
          const VF d10 = hn::IfThenElseZero(m10, left);
          left = hn::IfThenZeroElse(m10, left);
          store_pairs(d00, d01, dx + top + 2 * ox, n);
          store_pairs(d10, left, dx + top + g.w + 2 * ox, n);
        }
      }
      zero_rest_2x2(g, dx + p * g.h * g.w);
    }
  });
}

void max_bwd(const Pool2dGeom& g, const float* x, const float* y, const float* dy, float* dx) {
  if (is_2x2(g)) return max_bwd_2x2(g, x, y, dy, dx);
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const float* HWY_RESTRICT src = x + p * g.h * g.w;
      float* HWY_RESTRICT to = dx + p * g.h * g.w;
      std::fill_n(to, g.h * g.w, 0.f);
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const Span rows(oy, g.sh, g.ph, g.kh, g.h);
        for (int64_t ox = 0; ox < g.ow; ++ox) {
          const Span cols(ox, g.sw, g.pw, g.kw, g.w);
          const int64_t i = (p * g.oh + oy) * g.ow + ox;
          const float best = y[i];
          const auto first = [&]() -> int64_t {
            for (int64_t r = rows.begin; r < rows.end; ++r)
              for (int64_t c = cols.begin; c < cols.end; ++c) {
                const float v = src[r * g.w + c];
                if (v == best || (v != v && best != best)) return r * g.w + c;
              }
            return -1;
          }();
          if (first >= 0) to[first] += dy[i];
        }
      }
    }
  });
}

// dst[ox]: how many columns of the image (or of the window) the mean is over.
inline void column_counts(const Pool2dGeom& g, bool count_include_pad, float* dst) {
  for (int64_t ox = 0; ox < g.ow; ++ox)
    dst[ox] =
        static_cast<float>(count_include_pad ? g.kw : std::max<int64_t>(1, Span(ox, g.sw, g.pw, g.kw, g.w).count()));
}
inline float row_count(const Pool2dGeom& g, bool count_include_pad, int64_t oy) {
  return static_cast<float>(count_include_pad ? g.kh : std::max<int64_t>(1, Span(oy, g.sh, g.ph, g.kh, g.h).count()));
}
// dst[i] = src[i] / (columns[i] * rows)
HWY_INLINE void divide_line(const float* src, const float* columns, float rows, int64_t len, float* dst) {
  const DF d;
  for (int64_t i = 0; i < len; i += kLanes) {
    const int n = static_cast<int>(std::min<int64_t>(kLanes, len - i));
    const MF m = hn::FirstN(d, n);
    store_n(hn::Div(load_n(m, src + i, n), hn::Mul(load_n(m, columns + i, n), hn::Set(d, rows))), m, dst + i, n);
  }
}

void avg_fwd(const Pool2dGeom& g, const float* x, float* y, bool count_include_pad) {
  if (is_2x2(g)) return pool_2x2<SumOp>(g, x, y, 0.25f);
  if (is_whole(g)) return pool_whole<SumOp>(g, x, y, static_cast<float>(g.kw) * static_cast<float>(g.kh));
  float* columns = scratch(Scratch::Partial, g.ow);
  column_counts(g, count_include_pad, columns);
  pool_any<SumOp>(g, x, y, [&](float* line, int64_t oy) {
    divide_line(line, columns, row_count(g, count_include_pad, oy), g.ow, line);
  });
}

void avg_bwd_2x2(const Pool2dGeom& g, const float* dy, float* dx) {
  const DF d;
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t oy = 0; oy < g.oh; ++oy)
        for (int64_t ox = 0; ox < g.ow; ox += kLanes) {
          const int n = static_cast<int>(std::min<int64_t>(kLanes, g.ow - ox));
          const VF v = hn::Mul(load_n(hn::FirstN(d, n), dy + (p * g.oh + oy) * g.ow + ox, n), hn::Set(d, 0.25f));
          float* to = dx + (p * g.h + 2 * oy) * g.w + 2 * ox;
          store_pairs(v, v, to, n);
          store_pairs(v, v, to + g.w, n);
        }
      zero_rest_2x2(g, dx + p * g.h * g.w);
    }
  });
}

void avg_bwd(const Pool2dGeom& g, const float* dy, float* dx, bool count_include_pad) {
  if (is_2x2(g)) return avg_bwd_2x2(g, dy, dx);
  if (is_whole(g)) {
    const float pixels = static_cast<float>(g.kw) * static_cast<float>(g.kh);
    return parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) std::fill_n(dx + p * g.h * g.w, g.h * g.w, 0.f + dy[p] / pixels);
    });
  }
  const DF d;
  const int64_t pitch = ((g.ow - 1) * g.sw + g.kw - 1) / g.sw + 1, width = std::max(g.w + g.pw, pitch * g.sw);
  float* columns = scratch(Scratch::Partial, g.ow);
  column_counts(g, count_include_pad, columns);
  parallel_for(g.planes, plane_grain(g), [&](int64_t begin, int64_t end) {
    float* grad = scratch(Scratch::Planes, g.ow + pitch * g.sw + width);
    float *phases = grad + g.ow, *line = phases + pitch * g.sw;
    for (int64_t p = begin; p < end; ++p) {
      float* HWY_RESTRICT to = dx + p * g.h * g.w;
      std::fill_n(to, g.h * g.w, 0.f);
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const Span rows(oy, g.sh, g.ph, g.kh, g.h);
        divide_line(dy + (p * g.oh + oy) * g.ow, columns, row_count(g, count_include_pad, oy), g.ow, grad);
        std::fill_n(phases, pitch * g.sw, 0.f);
        for (int64_t s = 0; s < g.kw; ++s) {
          float* HWY_RESTRICT shifted = phases + s % g.sw * pitch + s / g.sw;
          for (int64_t ox = 0; ox < g.ow; ++ox) shifted[ox] += grad[ox];
        }
        std::fill_n(line, width, 0.f);
        for (int64_t q = 0; q < g.sw; ++q)
          for (int64_t j = 0; j < pitch; ++j) line[j * g.sw + q] = phases[q * pitch + j];
        for (int64_t r = rows.begin; r < rows.end; ++r)
          for (int64_t i = 0; i < g.w; i += kLanes) {
            const int n = static_cast<int>(std::min<int64_t>(kLanes, g.w - i));
            const MF m = hn::FirstN(d, n);
            store_n(hn::Add(load_n(m, to + r * g.w + i, n), load_n(m, line + g.pw + i, n)), m, to + r * g.w + i, n);
          }
      }
    }
  });
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(max_fwd);
HWY_EXPORT(max_bwd);
HWY_EXPORT(avg_fwd);
HWY_EXPORT(avg_bwd);
bool empty(const Pool2dGeom& g) { return g.planes == 0 || g.oh <= 0 || g.ow <= 0; }
}  // namespace

void max_pool2d_fwd(const Pool2dGeom& g, const float* x, float* y) {
  if (!empty(g)) HWY_DYNAMIC_DISPATCH(max_fwd)(g, x, y);
}
void max_pool2d_bwd(const Pool2dGeom& g, const float* x, const float* y, const float* dy, float* dx) {
  if (empty(g)) {
    std::fill_n(dx, g.planes * g.h * g.w, 0.f);
  } else {
    HWY_DYNAMIC_DISPATCH(max_bwd)(g, x, y, dy, dx);
  }
}
void avg_pool2d_fwd(const Pool2dGeom& g, const float* x, float* y, bool count_include_pad) {
  if (!empty(g)) HWY_DYNAMIC_DISPATCH(avg_fwd)(g, x, y, count_include_pad);
}
void avg_pool2d_bwd(const Pool2dGeom& g, const float* dy, float* dx, bool count_include_pad) {
  if (empty(g)) {
    std::fill_n(dx, g.planes * g.h * g.w, 0.f);
  } else {
    HWY_DYNAMIC_DISPATCH(avg_bwd)(g, dy, dx, count_include_pad);
  }
}

}  // namespace mge::simd
#endif
