// Batch normalisation with what follows it in a network: + another tensor, an activation. Forward and backward read and
// write memory as often as without. The backward pass computes the activation's slope again from x.
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/norm/batch_norm.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/norm/batch_norm_fused.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/norm/batch_norm-inl.h"
#include "kernel/simd/vec-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

namespace body = mge::body::HWY_NAMESPACE;

// An activation by the bodies of its op and of the op that is its gradient, taken at the activation's input. Those of
// relu and relu6 are made for the output: it lies between the bounds exactly where the input does.
template <class Op, class Grad>
struct ActOf {
  static constexpr bool kNone = false;
  static constexpr const char* name = Op::name;
  static HWY_INLINE VF eval(VF y) { return Op::eval(body::VF(y)).v; }
  static HWY_INLINE VF grad(VF y, VF gy) { return Grad::eval(body::VF(y), body::VF(gy)).v; }
};
template <class... Acts>
struct ActList {};
// Those of kNormActs (op/norm/batch_norm.h).
using FusedActs = ActList<ActOf<body::Relu, body::ReluGrad>, ActOf<body::Relu6, body::Relu6Grad>,
                          ActOf<body::HSwish, body::HSwishGrad>, ActOf<body::Silu, body::SiluGrad>>;

// f(Act) for the one that has this name.
template <class F, class... Acts>
void with_act(const std::string& name, ActList<Acts...>, F f) {
  if (name == "none") return f(NoAct());
  ((name == Acts::name ? f(Acts()) : void()), ...);
}

void batch_norm_fused(const KernelArgs& a) {
  const auto& at = a.as<BatchNormFusedAttrs>();
  const float* add = at.has_add ? a.in[3].data<float>() : nullptr;
  with_act(at.act, FusedActs(), [&](auto act) { train<decltype(act)>(a, at.eps, add); });
}

void batch_norm_fused_bwd(const KernelArgs& a) {
  with_act(a.as<BatchNormFusedBwdAttrs>().act, FusedActs(),
           [&](auto act) { bwd<decltype(act)>(a, a.in[5].data<float>()); });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(batch_norm_fused);
HWY_EXPORT(batch_norm_fused_bwd);

void register_batch_norm_fused(KernelRegistry& r) {
  add(r, "batch_norm_fused", "simd_batch_norm_fused",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_fused)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .alias = {3, -1, -1, -1}, .layouts = batch_norm_layouts});
  add(r, "batch_norm_fused_bwd", "simd_batch_norm_fused_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_fused_bwd)
        (a);
      },
      {.workspace = bn_workspace, .alias = {1, -1, -1, -1}, .layouts = batch_norm_layouts});
}

}  // namespace mge::simd_nn
#endif
