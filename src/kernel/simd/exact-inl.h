// Highway leaves two things to the target that our numerics do not: whether MulAdd rounds once, and whether a quotient
// or a root is the nearest number. Where its version differs, overloads for float32 stand here, more specialised than
// the templates, so that hn::MulAdd means the same everywhere. Included after <hwy/highway.h> by whoever calls one of
// them.
#if defined(MGE_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_EXACT_INL_H_
#undef MGE_EXACT_INL_H_
#else
#define MGE_EXACT_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hwy::HWY_NAMESPACE {

#if HWY_TARGET == HWY_EMU128  // rounds the product, and a quotient by zero is zero
template <size_t N>
HWY_INLINE Vec128<float, N> Div(Vec128<float, N> a, Vec128<float, N> b) {
  for (size_t i = 0; i < N; ++i) a.raw[i] = a.raw[i] / b.raw[i];
  return a;
}
template <size_t N>
HWY_INLINE Vec128<float, N> MulAdd(Vec128<float, N> a, Vec128<float, N> b, Vec128<float, N> c) {
  for (size_t i = 0; i < N; ++i) c.raw[i] = __builtin_fmaf(a.raw[i], b.raw[i], c.raw[i]);
  return c;
}
template <size_t N>
HWY_INLINE Vec128<float, N> NegMulAdd(Vec128<float, N> a, Vec128<float, N> b, Vec128<float, N> c) {
  for (size_t i = 0; i < N; ++i) c.raw[i] = __builtin_fmaf(-a.raw[i], b.raw[i], c.raw[i]);
  return c;
}
#elif HWY_ARCH_ARM_V7  // estimates and corrects them
template <size_t N>
HWY_INLINE Vec128<float, N> Div(Vec128<float, N> a, Vec128<float, N> b) {
  for (size_t i = 0; i < N; ++i) a.raw[i] = a.raw[i] / b.raw[i];
  return a;
}
template <size_t N>
HWY_INLINE Vec128<float, N> Sqrt(Vec128<float, N> a) {
  for (size_t i = 0; i < N; ++i) a.raw[i] = __builtin_sqrtf(a.raw[i]);
  return a;
}
#endif

}  // namespace hwy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
