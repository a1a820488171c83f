#include "pass/cse.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(Cse, MergesEqualNodesTransitively) {
  expect_rewrite(cse, R"(graph g(%x: f32[2,3], %y: f32[2,3]) {
  %0 = add %x, %y       loc a.py:1
  %1 = add %y, %x       loc a.py:2
  %2 = exp %0           loc a.py:3
  %3 = exp %1           loc a.py:4
  %4 = sub %2, %3       loc a.py:5
} returns(%4)
)",
                 R"(graph g(%x: f32[2,3], %y: f32[2,3]) {
  %0 = add %x, %y                                   loc a.py:1
  %1 = exp %0                                       loc a.py:3
  %2 = sub %1, %1                                   loc a.py:5
} returns(%2)
)");
}

TEST(Cse, AttributesAndOperandOrderMatter) {
  expect_unchanged(cse, R"(graph g(%x: f32[2,3], %y: f32[2,3]) {
  %0 = sub %x, %y
  %1 = sub %y, %x
  %2 = reduce %x {axes=[0]}
  %3 = reduce %x {axes=[1]}
} returns(%0, %1, %2, %3)
)");
}

TEST(Cse, MergesEqualConstants) {
  expect_rewrite(cse, R"(graph g(%x: f32[2]) {
  const %c0: f32[] = 0000003f
  const %c1: f32[] = 0000003f
  const %c2: i32[] = 0000003f
  %0 = mul %x, %c0
  %1 = mul %x, %c1
} returns(%0, %1, %c2)
)",
                 R"(graph g(%x: f32[2]) {
  const %c0: f32[] = 0000003f
  const %c1: i32[] = 0000003f
  %0 = mul %x, %c0
} returns(%0, %0, %c1)
)");
}

TEST(Cse, NeverMergesRandomOps) {
  expect_unchanged(cse, R"(graph g(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]}
  %2, %3 = rng_uniform %s {shape=[2]}
} returns(%0, %2)
)");
}

TEST(Cse, WhatIsComputedAgainStaysApart) {
  Graph g = ir::parse(R"(graph g(%x: f32[2]) {
  %0 = exp %x
  %1 = sin %0
  %2 = exp %x
  %3 = sin %2
  %4 = sin %2
  %5 = exp %x
} returns(%1, %3, %4, %5)
)");
  std::vector<ir::NodeId> nodes = g.order();
  for (size_t i = 2; i < 5; ++i) g.set_rerun(nodes[i], 7);
  g.set_rerun(nodes[5], 8);
  EXPECT_TRUE(cse(g));
  EXPECT_EQ(ir::print(g), R"(graph g(%x: f32[2]) {
  %0 = exp %x
  %1 = sin %0
  %2 = exp %x
  %3 = sin %2
  %4 = exp %x
} returns(%1, %3, %3, %4)
)");
}

TEST(Cse, CommitsFollow) {
  expect_rewrite(cse, R"(graph g(%x: f32[2]) vars(%w: f32[2]) {
  %0 = neg %x
  %n = neg %x
} returns(%0) commits(%w <- %n)
)",
                 R"(graph g(%x: f32[2]) vars(%w: f32[2]) {
  %n = neg %x
} returns(out0=%n) commits(%w <- %n)
)");
}

}  // namespace
}  // namespace mge::pass
