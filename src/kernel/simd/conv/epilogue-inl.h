// The steps of an Epilogue (conv2d_raw.h) on vectors of channels, once per instruction set: for kernels on
// channels-last memory that have their sums at hand.
//   const ChannelSteps steps(e, c, mask, kLanes);
//   v = steps.after(hn::Add(steps.before(v), summand));
//   steps.all(rows, add, [&](int i) HWY_ATTR { return hn::LoadU(DF(), add + i * channels); });
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
    // The last number that is added is never -0, so no sum is, and one step less tells what lies above zero.
    if (act && has_scale) shift = hn::Add(shift, hn::Zero(DF()));
    if (act && has_bias && !has_scale) bias = hn::Add(bias, hn::Zero(DF()));
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
  // Both and the addition between them, of rows that share these channels, step by step: what a step needs is asked
  // once. summand(i) is what row i adds, if anything does.
  template <int N, class Summand>
  HWY_INLINE void all(VF (&rows)[N], bool adds, Summand summand) const {
    auto each = [&](auto step) HWY_ATTR {
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) rows[i] = step(rows[i], i);
    };
    if (has_bias) each([&](VF v, int) HWY_ATTR { return hn::Add(v, bias); });
    if (has_scale) each([&](VF v, int) HWY_ATTR { return hn::Add(hn::Mul(v, scale), shift); });
    if (adds) each([&](VF v, int i) HWY_ATTR { return hn::Add(v, summand(i)); });
    if (act == 2) each([&](VF v, int) HWY_ATTR { return below_six(v); });
    if (act && (has_bias || has_scale))
      each([&](VF v, int) HWY_ATTR { return above_zero_but_minus(v); });
    else if (act)
      each([&](VF v, int) HWY_ATTR { return above_zero(v); });
  }
  // A NaN stays, and a negative zero becomes a positive one: MINPS is 6 < v ? 6 : v, FMIN and FMAX (not the FMINNM that
  // hn::Min is) give a NaN if there is one, and FMAX the positive of two zeros.
  static HWY_INLINE VF below_six(VF v) {
    const VF six = hn::Set(DF(), 6.f);
#if HWY_ARCH_X86
    return hn::Min(six, v);
#elif HWY_ARCH_ARM_A64
    return VF(vminq_f32(six.raw, v.raw));
#else
    return hn::IfThenElse(hn::Gt(v, six), six, v);
#endif
  }
  // MAXPS is 0 > v ? 0 : v, which leaves a negative zero.
  static HWY_INLINE VF above_zero_but_minus(VF v) {
#if HWY_ARCH_X86
    return hn::Max(hn::Zero(DF()), v);
#else
    return above_zero(v);
#endif
  }
  static HWY_INLINE VF above_zero(VF v) {
#if HWY_ARCH_ARM_A64
    return VF(vmaxq_f32(v.raw, vdupq_n_f32(0)));
#else
    return hn::IfThenZeroElse(hn::Le(v, hn::Zero(DF())), v);
#endif
  }
};

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
