#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/elementwise_binary.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

// What the bodies do in 64 bits, for int32 alone: the bits that are stored are the same.
using DU = hn::RebindToUnsigned<DI>;

HWY_INLINE VI shift_left(VI a, VI b) {
  const DU d;
  const auto by = hn::BitCast(d, b.v);
  const auto in = hn::Lt(by, hn::Set(d, 32));
  return VI(hn::BitCast(DI(), hn::IfThenElseZero(in, hn::Shl(hn::BitCast(d, a.v), hn::IfThenElseZero(in, by)))));
}
HWY_INLINE VI shift_right(VI a, VI b) {
  const DU d;
  return VI(hn::Shr(a.v, hn::BitCast(DI(), hn::Min(hn::BitCast(d, b.v), hn::Set(d, 31)))));
}

#if HWY_HAVE_FLOAT64 && HWY_TARGET != HWY_SCALAR
// A quotient that is not whole is at least 1 / |b| away from a whole number, much more than double rounds it by.
using DH = hn::Half<DI>;
HWY_INLINE hn::Vec<DH> floor_of_quotient(hn::Vec<DH> a, hn::Vec<DH> b) {
  const hn::Rebind<double, DH> d;
  return hn::DemoteTo(DH(), hn::Floor(hn::Div(hn::PromoteTo(d, a), hn::PromoteTo(d, b))));
}
HWY_INLINE VI whole_quotient(VI a, VI b) {
  const DI d;
  const DH h;
  return VI(hn::Combine(d, floor_of_quotient(hn::UpperHalf(h, a.v), hn::UpperHalf(h, b.v)),
                        floor_of_quotient(hn::LowerHalf(h, a.v), hn::LowerHalf(h, b.v))));
}
#else
HWY_INLINE VI whole_quotient(VI a, VI b) {
  HWY_ALIGN int32_t x[kLanes], y[kLanes];
  hn::Store(a.v, DI(), x);
  hn::Store(b.v, DI(), y);
  for (int64_t i = 0; i < kLanes; ++i) {
    const int64_t q = int64_t{x[i]} / y[i];
    x[i] = static_cast<int32_t>(q - (q * y[i] != x[i] && (x[i] < 0) != (y[i] < 0)));
  }
  return VI(hn::Load(DI(), x));
}
#endif
// As in 64 bits: 0 for b = 0, and -2^31 / -1 wraps when it is stored.
HWY_INLINE VI floor_div(VI a, VI b) {
  const VI zero(0), one(1);
  const VM none = b == zero, minus = b == VI(-1);
  return select(none, zero, select(minus, -a, whole_quotient(a, select(mask_or(none, minus), one, b))));
}
HWY_INLINE VI mod(VI a, VI b) { return select(b == VI(0), b, a - floor_div(a, b) * b); }

template <class... Ops>
void set_int_rows(simd::RowTable& t, OpList<Ops...>) {
  if constexpr (dtype_in_build(DType::I32))
    (
        [&] {
          if constexpr (vectors_in_build(Ops::name)) t.set(Ops::name, {.i32 = row_pair<Ops, Lane<VI>, Lane<VI>>()});
        }(),
        ...);
}

void fill_binary(simd::RowTable& t) {
  set_rows<true>(t, OpList<Add, Sub, Mul, Maximum, Minimum, PRelu, Lt, Le, Eq, Ne, ReluGrad>());
  set_half_rows(t, OpList<Add, Sub, Mul, Div>());
  set_rows<true>(t, OpList<FloorDiv, Mod>());
  set_int_rows(t, ShiftOps());
  set_rows<false>(t, OpList<Div, Pow, Atan2, LogAddExp>());
  set_rows<false>(t, OpList<AbsGrad, Relu6Grad, SigmoidGrad, TanhGrad, HSigmoidGrad, HSwishGrad, SiluGrad, GeluGrad>());
}

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::body {
HWY_EXPORT(fill_binary);
static void fill(simd::RowTable& t) { HWY_DYNAMIC_DISPATCH(fill_binary)(t); }
}  // namespace mge::body
void mge::simd::fill_binary_rows(RowTable& t) { body::fill(t); }
#endif
