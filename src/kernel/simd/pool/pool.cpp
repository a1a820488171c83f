#include "op/pool/pool.h"

#include <algorithm>

#include "kernel/layouts.h"
#include "kernel/rows.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/pool/pool_raw.h"
#include "op/in_build.h"

namespace mge::simd_nn {
namespace {

template <class A>
simd::Pool2dGeom raw(const A& at, const Shape& x) {
  PoolGeom g = pool_geom(at, x);
  return {.planes = g.n * g.c,
          .h = g.h,
          .w = g.w,
          .oh = g.oh,
          .ow = g.ow,
          .kh = g.kh,
          .kw = g.kw,
          .sh = g.sh,
          .sw = g.sw,
          .ph = g.ph,
          .pw = g.pw};
}

// The first input decides for all: every operand is an image.
void pool_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const bool last = in_channels_last(in[0]);
  for (size_t i = 0; i < a.in.size(); ++i) last ? ask_channels_last(in[i]) : ask_row_major(in[i]);
  if (last) ask_channels_last(out[0]);
}

// Overlapping windows: finding the maxima again is scalar work on planes and vector work along channels, where
// reordering three images first is three times as fast (64 channels, 56x56, windows of 3x3 with stride 2).
void max_bwd_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  auto g = raw(a.as<PoolAttrs>(), in[0].shape);
  const bool apart = g.kh == 2 && g.kw == 2 && g.sh == 2 && g.sw == 2 && g.ph == 0 && g.pw == 0;
  if (!apart && in[0].shape[1] >= 16) ask_channels_last(in[0]);
  pool_layouts(a, in, out);
}

void run_max(const KernelArgs& a) {
  auto g = raw(a.as<PoolAttrs>(), a.in[0].shape);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  in_channels_last(a.in[0]) ? simd::max_pool2d_fwd_last(g, a.in[0].shape[1], x, y) : simd::max_pool2d_fwd(g, x, y);
}
RowRange pool_needs(const KernelArgs& a, RowRange of) {
  const auto g = raw(a.as<PoolAttrs>(), a.in[0].shape);
  const int64_t first = std::clamp<int64_t>(of.first * g.sh - g.ph, 0, g.h);
  return {first, std::clamp<int64_t>((of.last - 1) * g.sh - g.ph + g.kh, first, g.h)};
}
void max_rows(const KernelArgs& a, int64_t image, RowRange of) {
  const auto g = raw(a.as<PoolAttrs>(), a.in[0].shape);
  simd::max_pool2d_last_rows(g, a.in[0].shape[1], a.in[0].data<float>(), a.out[0].data<float>(),
                             image * g.oh + of.first, image * g.oh + of.last);
}
void run_max_bwd(const KernelArgs& a) {
  auto g = raw(a.as<PoolAttrs>(), a.in[0].shape);
  const float *x = a.in[0].data<float>(), *y = a.in[1].data<float>(), *gy = a.in[2].data<float>();
  float* gx = a.out[0].data<float>();
  in_channels_last(a.in[0]) ? simd::max_pool2d_bwd_last(g, a.in[0].shape[1], x, y, gy, gx)
                            : simd::max_pool2d_bwd(g, x, y, gy, gx);
}
void run_avg(const KernelArgs& a) {
  const auto& at = a.as<AvgPoolAttrs>();
  auto g = raw(at, a.in[0].shape);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  in_channels_last(a.in[0]) ? simd::avg_pool2d_fwd_last(g, a.in[0].shape[1], x, y, at.include_pad)
                            : simd::avg_pool2d_fwd(g, x, y, at.include_pad);
}
void run_avg_bwd(const KernelArgs& a) {
  const auto& at = a.as<AvgPoolBwdAttrs>();
  auto g = raw(at, a.out[0].shape);
  const float* gy = a.in[0].data<float>();
  float* gx = a.out[0].data<float>();
  in_channels_last(a.in[0]) ? simd::avg_pool2d_bwd_last(g, a.in[0].shape[1], gy, gx, at.include_pad)
                            : simd::avg_pool2d_bwd(g, gy, gx, at.include_pad);
}

}  // namespace

void register_pool(KernelRegistry& r) {
  const Extra keep{.layouts = pool_layouts};
  add(r, "max_pool2d", "simd_max_pool2d", run_max, keep);
  if (OpName("max_pool2d").here) add_rows(run_max, {pool_needs, max_rows});
  add(r, "max_pool2d_bwd", "simd_max_pool2d_bwd", run_max_bwd, {.layouts = max_bwd_layouts});
  add(r, "avg_pool2d", "simd_avg_pool2d", run_avg, keep);
  add(r, "avg_pool2d_bwd", "simd_avg_pool2d_bwd", run_avg_bwd, keep);
}

}  // namespace mge::simd_nn
