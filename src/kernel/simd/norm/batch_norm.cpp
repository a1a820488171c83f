// batch_norm_train, batch_norm_bwd and batch_norm_infer; how they sum is in batch_norm-inl.h.
#include "kernel/simd/norm/batch_norm.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/norm/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/norm/batch_norm-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

void batch_norm_train(const KernelArgs& a) { train<NoAct>(a, a.as<BatchNormAttrs>().eps, nullptr); }
void batch_norm_bwd(const KernelArgs& a) { bwd<NoAct>(a, nullptr); }

// Each step rounded: the bits of the decomposition.
void batch_norm_infer(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  float eps = static_cast<float>(a.as<BatchNormAttrs>().eps);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *b = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *var = a.in[4].data<float>();
  float *y = a.out[0].data<float>(), *scale = static_cast<float*>(a.workspace), *shift = scale + p.g.channels;
  each_vector(p.g.channels, [&](int64_t c, int k) {
    VF s = hn::Div(load_n(w + c, k), hn::Sqrt(hn::Add(load_n(var + c, k), set(eps))));
    store_n(s, scale + c, k);
    store_n(hn::Sub(load_n(b + c, k), hn::Mul(load_n(mean + c, k), s)), shift + c, k);
  });
  each_element(p, x, nullptr, y, [&](auto of) HWY_ATTR {
    return [x, s = of(scale), t = of(shift)](int64_t i, int k)
               HWY_ATTR { return hn::Add(hn::Mul(load_n(x + i, k), s), t); };
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

void batch_norm_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const bool last = in_channels_last(in[0]);
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (last && in[i].shape == in[0].shape)
      ask_channels_last(in[i]);
    else
      ask_row_major(in[i]);
  }
  if (last) ask_channels_last(out[0]);
}

HWY_EXPORT(batch_norm_train);
HWY_EXPORT(batch_norm_bwd);
HWY_EXPORT(batch_norm_infer);

void register_batch_norm(KernelRegistry& r) {
  add(r, "batch_norm_train", "simd_batch_norm_train",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_train)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
  add(r, "batch_norm_bwd", "simd_batch_norm_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_bwd)
        (a);
      },
      {.workspace = bn_workspace, .alias = {1, -1, -1, -1}, .layouts = batch_norm_layouts});
  add(r, "batch_norm_infer", "simd_batch_norm_infer",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_infer)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
}

}  // namespace mge::simd_nn
#endif
