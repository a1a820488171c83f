#include "kernel/simd/nn_simd.h"
#include "kernel/simd/pool_raw.h"
#include "op/pool.h"

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

void run_max(const KernelArgs& a) {
  simd::max_pool2d_fwd(raw(a.as<PoolAttrs>(), a.in[0].shape), a.in[0].data<float>(), a.out[0].data<float>());
}
void run_max_bwd(const KernelArgs& a) {
  simd::max_pool2d_bwd(raw(a.as<PoolAttrs>(), a.in[0].shape), a.in[0].data<float>(), a.in[1].data<float>(),
                       a.in[2].data<float>(), a.out[0].data<float>());
}
void run_avg(const KernelArgs& a) {
  const auto& at = a.as<AvgPoolAttrs>();
  simd::avg_pool2d_fwd(raw(at, a.in[0].shape), a.in[0].data<float>(), a.out[0].data<float>(), at.include_pad);
}
void run_avg_bwd(const KernelArgs& a) {
  const auto& at = a.as<AvgPoolBwdAttrs>();
  simd::avg_pool2d_bwd(raw(at, a.out[0].shape), a.in[0].data<float>(), a.out[0].data<float>(), at.include_pad);
}

}  // namespace

void register_pool(KernelRegistry& r) {
  add(r, "max_pool2d", "simd_max_pool2d", run_max);
  add(r, "max_pool2d_bwd", "simd_max_pool2d_bwd", run_max_bwd);
  add(r, "avg_pool2d", "simd_avg_pool2d", run_avg);
  add(r, "avg_pool2d_bwd", "simd_avg_pool2d_bwd", run_avg_bwd);
}

}  // namespace mge::simd_nn
