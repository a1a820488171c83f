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
    const VF six = hn::Set(DF(), 6.f);
    if (act == 2) v = hn::IfThenElse(hn::Gt(v, six), six, v);
    if (act) v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(DF())), v);
    return v;
  }
};

// Sums t[rows][kSums] through an epilogue into columns [c, c + cols) of y, whose rows are `ld` apart; the first is
// pixel `row`. `add`: on top of what y holds.
template <int64_t kSums>
void finish_tile(const Epilogue& e, int64_t rows, int64_t row, int64_t c, int64_t cols, const float* HWY_RESTRICT t,
                 bool add, float* HWY_RESTRICT y, int64_t ld) {
  const DF d;
  for (int64_t j = 0; j < cols; j += kLanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(kLanes, cols - j));
    const MF m = hn::FirstN(d, static_cast<size_t>(lanes));
    const ChannelSteps steps(e, c + j, m, lanes);
    auto each = [&](auto load, auto store) HWY_ATTR {
      const float* from = t + j;
      float* to = y + row * ld + c + j;
      const float* summand = e.add ? e.add + row * ld + c + j : nullptr;
      for (int64_t i = 0; i < rows; ++i, from += kSums, to += ld) {
        VF v = hn::Load(d, from);
        if (add) v = hn::Add(load(to), v);
        v = steps.before(v);
        if (summand) v = hn::Add(v, load(summand + i * ld));
        store(steps.after(v), to);
      }
    };
    if (lanes == kLanes)
      each([&](const float* p) HWY_ATTR { return hn::LoadU(d, p); },
           [&](VF v, float* p) HWY_ATTR { hn::StoreU(v, d, p); });
    else
      each([&](const float* p) HWY_ATTR { return load_n(m, p, lanes); },
           [&](VF v, float* p) HWY_ATTR { store_n(v, m, p, lanes); });
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
