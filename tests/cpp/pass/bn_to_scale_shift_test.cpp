#include "pass/bn_to_scale_shift.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(BnToScaleShift, BecomesItsDefinition) {
  expect_rewrite(bn_to_scale_shift,
                 R"(graph g(%x: f32[2,3,4,4], %w: f32[1,3,1,1], %b: f32[1,3,1,1], %m: f32[1,3,1,1], %v: f32[1,3,1,1]) {
  %y = batch_norm_infer %x, %w, %b, %m, %v   loc net.py:9
} returns(%y)
)",
                 R"(graph g(%x: f32[2,3,4,4], %w: f32[1,3,1,1], %b: f32[1,3,1,1], %m: f32[1,3,1,1], %v: f32[1,3,1,1]) {
  const %c0: f32[] = acc52737
  %0 = add %v, %c0                                  loc net.py:9
  %1 = sqrt %0                                      loc net.py:9
  %2 = div %w, %1                                   loc net.py:9
  %3 = mul %m, %2                                   loc net.py:9
  %4 = sub %b, %3                                   loc net.py:9
  %5 = mul %x, %2                                   loc net.py:9
  %y = add %5, %4                                   loc net.py:9
} returns(%y)
)");
}

TEST(BnToScaleShift, TrainingIsLeftAlone) {
  expect_unchanged(bn_to_scale_shift, R"(graph g(%x: f32[2,3,4,4], %w: f32[1,3,1,1], %b: f32[1,3,1,1]) {
  %0, %1, %2, %3 = batch_norm_train %x, %w, %b
} returns(%0)
)");
}

}  // namespace
}  // namespace mge::pass
