// The op bodies of op/elementwise/elementwise.h on Highway vectors: wrappers with operators, so that the same source
// compiles for float and for a register of floats. Included once per instruction set, after foreach_target.
#if defined(MGE_SIMD_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_SIMD_VEC_INL_H_
#undef MGE_SIMD_VEC_INL_H_
#else
#define MGE_SIMD_VEC_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernel/simd/exact-inl.h"
#include "op/elementwise/scalar_body.h"
#include "op/opdef.h"

HWY_BEFORE_NAMESPACE();

#define MGE_BODY_TARGET HWY_NAMESPACE
#include "op/elementwise/scalar_math.h"

namespace mge::body::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

struct VM {  // one truth value per float lane
  hn::Mask<DF> m;
};
struct VF {
  hn::Vec<DF> v;
  HWY_INLINE explicit VF(float x) : v(hn::Set(DF(), x)) {}
  HWY_INLINE explicit VF(hn::Vec<DF> x) : v(x) {}
};
struct VI {
  hn::Vec<DI> v;
  HWY_INLINE explicit VI(int32_t x) : v(hn::Set(DI(), x)) {}
  HWY_INLINE explicit VI(float x) : v(hn::Set(DI(), static_cast<int32_t>(x))) {}
  HWY_INLINE explicit VI(hn::Vec<DI> x) : v(x) {}
};
template <>
struct IntOf<VF> {
  using type = VI;
};
template <>
inline constexpr bool kWhole<VI> = true;

HWY_INLINE VF operator+(VF a, VF b) { return VF(hn::Add(a.v, b.v)); }
HWY_INLINE VF operator-(VF a, VF b) { return VF(hn::Sub(a.v, b.v)); }
HWY_INLINE VF operator*(VF a, VF b) { return VF(hn::Mul(a.v, b.v)); }
HWY_INLINE VF operator/(VF a, VF b) { return VF(hn::Div(a.v, b.v)); }
HWY_INLINE VF operator-(VF a) { return VF(hn::Neg(a.v)); }
HWY_INLINE VM operator<(VF a, VF b) { return {hn::Lt(a.v, b.v)}; }
HWY_INLINE VM operator<=(VF a, VF b) { return {hn::Le(a.v, b.v)}; }
HWY_INLINE VM operator>(VF a, VF b) { return {hn::Gt(a.v, b.v)}; }
HWY_INLINE VM operator>=(VF a, VF b) { return {hn::Ge(a.v, b.v)}; }
HWY_INLINE VM operator==(VF a, VF b) { return {hn::Eq(a.v, b.v)}; }
// Highway 1.0 compares "ordered and not equal" on AVX-512; IEEE says NaN != NaN.
HWY_INLINE VM operator!=(VF a, VF b) { return {hn::Not(hn::Eq(a.v, b.v))}; }  // hn::Ne is false for NaN on AVX
HWY_INLINE VF sqrt(VF x) { return VF(hn::Sqrt(x.v)); }
#if HWY_TARGET == HWY_EMU128 || HWY_ARCH_ARM_V7  // through integers, which have no negative zero
HWY_INLINE VF signed_as(VF x, hn::Vec<DF> whole) { return VF(hn::CopySign(whole, x.v)); }
#else
HWY_INLINE VF signed_as(VF, hn::Vec<DF> whole) { return VF(whole); }
#endif
HWY_INLINE VF floor(VF x) { return signed_as(x, hn::Floor(x.v)); }
HWY_INLINE VF ceil(VF x) { return signed_as(x, hn::Ceil(x.v)); }
HWY_INLINE VF trunc(VF x) { return signed_as(x, hn::Trunc(x.v)); }
HWY_INLINE VF abs(VF x) { return VF(hn::Abs(x.v)); }
HWY_INLINE VF copysign(VF m, VF s) { return VF(hn::CopySign(m.v, s.v)); }

HWY_INLINE VI operator+(VI a, VI b) { return VI(hn::Add(a.v, b.v)); }
HWY_INLINE VI operator-(VI a, VI b) { return VI(hn::Sub(a.v, b.v)); }
HWY_INLINE VI operator*(VI a, VI b) { return VI(hn::Mul(a.v, b.v)); }
HWY_INLINE VI operator-(VI a) { return VI(hn::Neg(a.v)); }
HWY_INLINE VI operator&(VI a, VI b) { return VI(hn::And(a.v, b.v)); }
HWY_INLINE VI operator|(VI a, VI b) { return VI(hn::Or(a.v, b.v)); }
HWY_INLINE VI operator^(VI a, VI b) { return VI(hn::Xor(a.v, b.v)); }
HWY_INLINE VM to_mask(hn::Mask<DI> m) { return {hn::RebindMask(DF(), m)}; }
HWY_INLINE VM operator==(VI a, VI b) { return to_mask(hn::Eq(a.v, b.v)); }
HWY_INLINE VM operator!=(VI a, VI b) { return to_mask(hn::Ne(a.v, b.v)); }
HWY_INLINE VM operator<(VI a, VI b) { return to_mask(hn::Lt(a.v, b.v)); }
HWY_INLINE VM operator>(VI a, VI b) { return to_mask(hn::Gt(a.v, b.v)); }
HWY_INLINE VM operator<=(VI a, VI b) { return to_mask(hn::Not(hn::Gt(a.v, b.v))); }
HWY_INLINE VI abs(VI x) { return VI(hn::Abs(x.v)); }
template <int k>
HWY_INLINE VI shl(VI a) {
  return VI(hn::ShiftLeft<k>(a.v));
}
template <int k>
HWY_INLINE VI sar(VI a) {
  return VI(hn::ShiftRight<k>(a.v));
}
HWY_INLINE VI bits(VF x) { return VI(hn::BitCast(DI(), x.v)); }
HWY_INLINE VF from_bits(VI x) { return VF(hn::BitCast(DF(), x.v)); }
HWY_INLINE VF to_float(VI x) { return VF(hn::ConvertTo(DF(), x.v)); }

HWY_INLINE VF select(VM m, VF a, VF b) { return VF(hn::IfThenElse(m.m, a.v, b.v)); }
HWY_INLINE VI select(VM m, VI a, VI b) { return VI(hn::IfThenElse(hn::RebindMask(DI(), m.m), a.v, b.v)); }
#if HWY_ARCH_X86  // min and max give their second operand when one is NaN
HWY_INLINE VF at_most(VF c, VF x) { return VF(hn::Min(c.v, x.v)); }
HWY_INLINE VF at_least(VF c, VF x) { return VF(hn::Max(c.v, x.v)); }
#endif
HWY_INLINE VM mask_and(VM a, VM b) { return {hn::And(a.m, b.m)}; }
HWY_INLINE VM mask_or(VM a, VM b) { return {hn::Or(a.m, b.m)}; }
HWY_INLINE VM mask_not(VM a) { return {hn::Not(a.m)}; }
HWY_INLINE bool any_of(VM m) { return !hn::AllFalse(DF(), m.m); }
HWY_INLINE bool all_of(VM m) { return hn::AllTrue(DF(), m.m); }

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
// Without the instruction: the product is exact in double; the sum is rounded to odd there, which makes the second
// rounding, to float, give what a single rounding would (Boldo and Melquiond, 2008).
HWY_INLINE hn::Vec<hn::Half<DF>> fma_half(hn::Vec<hn::Half<DF>> a, hn::Vec<hn::Half<DF>> b, hn::Vec<hn::Half<DF>> c) {
  using DD = hn::Rebind<double, hn::Half<DF>>;
  using DL = hn::RebindToSigned<DD>;
  const DD d;
  const DL l;
  auto p = hn::Mul(hn::PromoteTo(d, a), hn::PromoteTo(d, b)), w = hn::PromoteTo(d, c);
  auto s = hn::Add(p, w);
  auto t = hn::Sub(s, p);
  auto e = hn::Add(hn::Sub(p, hn::Sub(s, t)), hn::Sub(w, t));  // s + e is exact
  auto zero = hn::Zero(d);
  auto inexact = hn::Or(hn::Lt(e, zero), hn::Gt(e, zero));
  auto even = hn::Eq(hn::And(hn::BitCast(l, s), hn::Set(l, 1)), hn::Zero(l));
  auto away = hn::Xor(hn::BitCast(l, e), hn::BitCast(l, s));  // sign bit: e points towards zero
  auto step = hn::Or(hn::BroadcastSignBit(away), hn::Set(l, 1));
  auto fix = hn::And(hn::RebindMask(l, inexact), even);
  auto odd = hn::Add(hn::BitCast(l, s), hn::IfThenElseZero(fix, step));
  return hn::DemoteTo(hn::Half<DF>(), hn::BitCast(d, odd));
}
HWY_INLINE VF fma(VF a, VF b, VF c) {
  const hn::Half<DF> h;
  return VF(hn::Combine(DF(), fma_half(hn::UpperHalf(h, a.v), hn::UpperHalf(h, b.v), hn::UpperHalf(h, c.v)),
                        fma_half(hn::LowerHalf(h, a.v), hn::LowerHalf(h, b.v), hn::LowerHalf(h, c.v))));
}
#else
HWY_INLINE VF fma(VF a, VF b, VF c) { return VF(hn::MulAdd(a.v, b.v, c.v)); }
#endif

// Rare lanes go through the scalar function, one by one.
HWY_NOINLINE inline void reduce_huge_lanes(VM m, VF x, VF& r, VI& n) {
  HWY_ALIGN float xs[kLanes], rs[kLanes];
  HWY_ALIGN int32_t ns[kLanes];
  uint8_t set[8] = {};
  hn::StoreMaskBits(DF(), m.m, set);
  hn::Store(x.v, DF(), xs);
  hn::Store(r.v, DF(), rs);
  hn::Store(n.v, DI(), ns);
  for (int64_t i = 0; i < kLanes; ++i) {
    if (!(set[i / 8] >> i % 8 & 1)) continue;
    I32 q(0);
    reduce_huge(xs[i], rs[i], q);
    ns[i] = q.v;
  }
  r = VF(hn::Load(DF(), rs));
  n = VI(hn::Load(DI(), ns));
}
HWY_NOINLINE inline VF fmod_lanes(VM m, VF x, VF y, VF r) {
  HWY_ALIGN float xs[kLanes], ys[kLanes], rs[kLanes];
  uint8_t set[8] = {};
  hn::StoreMaskBits(DF(), m.m, set);
  hn::Store(x.v, DF(), xs);
  hn::Store(y.v, DF(), ys);
  hn::Store(r.v, DF(), rs);
  for (int64_t i = 0; i < kLanes; ++i)
    if (set[i / 8] >> i % 8 & 1) rs[i] = fmod_lanes(true, xs[i], ys[i], 0.f);
  return VF(hn::Load(DF(), rs));
}

// bool tensors: bytes that are 0 or 1.
using DB = hn::ScalableTag<uint8_t>;
struct VB {
  hn::Vec<DB> v;
};
HWY_INLINE VB mask_and(VB a, VB b) { return {hn::And(a.v, b.v)}; }
HWY_INLINE VB mask_or(VB a, VB b) { return {hn::Or(a.v, b.v)}; }
HWY_INLINE VB mask_xor(VB a, VB b) { return {hn::Xor(a.v, b.v)}; }
HWY_INLINE VB mask_not(VB a) { return {hn::Xor(a.v, hn::Set(DB(), 1))}; }

}  // namespace mge::body::HWY_NAMESPACE

#include "op/elementwise/elementwise.h"
#undef MGE_BODY_TARGET

HWY_AFTER_NAMESPACE();
#endif
