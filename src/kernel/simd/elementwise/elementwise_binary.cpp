#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/elementwise_binary.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

void fill_binary(simd::RowTable& t) {
  set_rows<true>(t, OpList<Add, Sub, Mul, Maximum, Minimum, PRelu, Lt, Le, Eq, Ne, ReluGrad>());
  set_half_rows(t, OpList<Add, Sub, Mul, Div>());
  set_rows<false>(t, OpList<FloorDiv, Mod, Div, Pow, Atan2, LogAddExp>());
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
