#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/elementwise_exp.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

void fill_exp(simd::RowTable& t) { set_rows<false>(t, ExpUnaryOps()); }

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::body {
HWY_EXPORT(fill_exp);
static void fill(simd::RowTable& t) { HWY_DYNAMIC_DISPATCH(fill_exp)(t); }
}  // namespace mge::body
void mge::simd::fill_exp_rows(RowTable& t) { body::fill(t); }
#endif
