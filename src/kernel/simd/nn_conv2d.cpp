// conv2d and conv2d_fused reach the same convolution with an epilogue that rounds each step, so their bits agree.
#include "kernel/simd/conv2d_raw.h"
#include "kernel/simd/nn_simd.h"
#include "op/conv2d.h"

namespace mge::simd_nn {
namespace {

simd::Conv2dGeom raw(const Conv2dGeom& g) {
  return {.n = g.n,
          .c = g.c,
          .h = g.h,
          .w = g.w,
          .oc = g.o,
          .oh = g.oh,
          .ow = g.ow,
          .kh = g.kh,
          .kw = g.kw,
          .sh = g.sh,
          .sw = g.sw,
          .ph = g.ph,
          .pw = g.pw,
          .dh = g.dh,
          .dw = g.dw,
          .groups = g.groups};
}

void run_conv2d(const KernelArgs& a) {
  simd::Epilogue e;
  if (a.in.size() == 3) e.bias = a.in[2].data<float>();
  simd::conv2d_fwd(raw(conv2d_geom(a.as<Conv2dAttrs>(), a.in[0].shape, a.in[1].shape)), a.in[0].data<float>(),
                   a.in[1].data<float>(), a.out[0].data<float>(), e.bias ? &e : nullptr);
}

void run_conv2d_fused(const KernelArgs& a) {
  const auto& at = a.as<Conv2dFusedAttrs>();
  Conv2dExtras x = conv2d_extras(at);
  auto extra = [&](int i) -> const float* { return i < 0 ? nullptr : a.in[static_cast<size_t>(i)].data<float>(); };
  simd::Epilogue e{extra(x.bias), extra(x.scale), extra(x.shift), extra(x.add), at.act == "relu" ? 1 : 0};
  simd::conv2d_fwd(raw(conv2d_geom(at, a.in[0].shape, a.in[1].shape)), a.in[0].data<float>(), a.in[1].data<float>(),
                   a.out[0].data<float>(), &e);
}

void run_conv2d_dx(const KernelArgs& a) {
  simd::conv2d_bwd_data(raw(conv2d_geom(a.as<Conv2dDxAttrs>(), a.out[0].shape, a.in[1].shape)), a.in[0].data<float>(),
                        a.in[1].data<float>(), a.out[0].data<float>());
}

void run_conv2d_dw(const KernelArgs& a) {
  simd::conv2d_bwd_weight(raw(conv2d_geom(a.as<Conv2dDwAttrs>(), a.in[0].shape, a.out[0].shape)), a.in[0].data<float>(),
                          a.in[1].data<float>(), a.out[0].data<float>());
}

}  // namespace

void register_conv2d(KernelRegistry& r) {
  add(r, "conv2d", "simd_conv2d", run_conv2d);
  add(r, "conv2d_fused", "simd_conv2d_fused", run_conv2d_fused);
  add(r, "conv2d_dx", "simd_conv2d_dx", run_conv2d_dx);
  add(r, "conv2d_dw", "simd_conv2d_dw", run_conv2d_dw);
}

}  // namespace mge::simd_nn
