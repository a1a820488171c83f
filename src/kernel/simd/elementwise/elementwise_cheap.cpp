#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/elementwise_cheap.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

void fill_cheap(simd::RowTable& t) {
  set_rows<false>(t, OpList<Sqrt, Rsqrt, HSwish, HSigmoid, Floor, Ceil, Round>());
  set_rows<true>(t, OpList<Abs, Neg, Square, Relu, Relu6, Sign>());
  set_half_rows(t, OpList<Relu>());
  set_rows<false>(t, TestOps());
}

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::body {
HWY_EXPORT(fill_cheap);
static void fill(simd::RowTable& t) { HWY_DYNAMIC_DISPATCH(fill_cheap)(t); }
}  // namespace mge::body
void mge::simd::fill_cheap_rows(RowTable& t) { body::fill(t); }
#endif
