#include "pass/write_out.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(WriteOut, BatchNormBecomesItsDefinition) {
  expect_rewrite(write_out,
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

TEST(WriteOut, TrainingIsLeftAlone) {
  expect_unchanged(write_out, R"(graph g(%x: f32[2,3,4,4], %w: f32[1,3,1,1], %b: f32[1,3,1,1]) {
  %0, %1, %2, %3 = batch_norm_train %x, %w, %b
} returns(%0)
)");
}

TEST(WriteOut, SimulatedQuantisationIsAChain) {
  expect_rewrite(write_out,
                 R"(graph g(%x: f32[2,3], %s: f32[1], %z: f32[1], %f: f32[]) {
  %y = lsq %x, %s, %z, %f {qmin=-8, qmax=7}
} returns(%y)
)",
                 R"(graph g(%x: f32[2,3], %s: f32[1], %z: f32[1], %f: f32[]) {
  const %c0: f32[] = 000000c1
  const %c1: f32[] = 0000e040
  %0 = div %x, %s
  %1 = round %0
  %2 = add %1, %z
  %3 = maximum %2, %c0
  %4 = minimum %3, %c1
  %5 = sub %4, %z
  %y = mul %5, %s
} returns(%y)
)");
}

}  // namespace
}  // namespace mge::pass
