#include "pass/dce.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(Dce, RemovesDeadChainsAndConstants) {
  expect_rewrite(dce, R"(graph g(%x: f32[2]) vars(%w: f32[2]) {
  const %c0: f32[] = 0000003f
  const %c1: f32[] = 0000803f
  %0 = exp %x
  %1 = mul %0, %c0
  %2 = neg %x
  %3 = add %w, %c1
} returns(%2) commits(%w <- %3)
)",
                 R"(graph g(%x: f32[2]) vars(%w: f32[2]) {
  const %c0: f32[] = 0000803f
  %0 = neg %x
  %1 = add %w, %c0
} returns(%0) commits(%w <- %1)
)");
}

TEST(Dce, KeepsNodesWithOneReadResult) {
  expect_unchanged(dce, "graph g(%x: f32[2,3], %t: i32[2]) {\n  %l, %p = softmax_xent %x, %t\n} returns(%p)\n");
}

TEST(Dce, DeadRandomOpsLeaveTheTokenChainWhole) {
  expect_rewrite(dce, R"(graph g(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]}
  %2, %3 = rng_uniform %s {shape=[3]}
  %4, %5 = rng_uniform %1 {shape=[2]}
} returns(%0, %5)
)",
                 R"(graph g(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]} token(entry -> %t0)
  %2, %3 = rng_uniform %1 {shape=[2]} token(%t0 -> %t1)
} returns(%0, %3)
)");
}

}  // namespace
}  // namespace mge::pass
