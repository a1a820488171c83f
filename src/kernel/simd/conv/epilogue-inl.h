// The steps of an Epilogue (conv2d_raw.h) on vectors of channels, once per instruction set: for kernels on
// channels-last memory that have their sums at hand.
//   const ChannelSteps steps(e, c, mask, kLanes);
//   v = steps.after(hn::Add(steps.before(v), summand));
#if defined(MGE_CONV_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_CONV_EPILOGUE_INL_H_
#undef MGE_CONV_EPILOGUE_INL_H_
#else
#define MGE_CONV_EPILOGUE_INL_H_
#endif

#include "kernel/simd/conv/conv2d_raw.h"
#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// What an epilogue holds for one vector of channels.
struct ChannelSteps {
  VF bias, scale, shift;
  bool has_bias, has_scale;
  int act;
  HWY_INLINE ChannelSteps(const Epilogue& e, int64_t c, MF m, int lanes)
      : has_bias(e.bias), has_scale(e.scale), act(e.act) {
    auto at = [&](const float* p) HWY_ATTR {
      if (!p) return hn::Zero(DF());
      return lanes == kLanes ? hn::LoadU(DF(), p + c) : load_n(m, p + c, lanes);
    };
    bias = at(e.bias), scale = at(e.scale), shift = at(e.shift);
  }
  // The steps before the addition, and those after it.
  HWY_INLINE VF before(VF v) const {
    if (has_bias) v = hn::Add(v, bias);
    if (has_scale) v = hn::Add(hn::Mul(v, scale), shift);
    return v;
  }
  HWY_INLINE VF after(VF v) const {
    if (act == 2) v = below_six(v);
    if (act) v = above_zero(v);
    return v;
  }
  static HWY_INLINE VF below_six(VF v) {
    const VF six = hn::Set(DF(), 6.f);
#if HWY_ARCH_X86  // MINPS is 6 < v ? 6 : v, so a NaN stays
    return hn::Min(six, v);
#else
    return hn::IfThenElse(hn::Gt(v, six), six, v);
#endif
  }
  static HWY_INLINE VF above_zero(VF v) { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(DF())), v); }
};

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
