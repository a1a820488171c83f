#include "pass/own_generators.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

bool own(Graph& g) { return !own_generators(g).empty(); }

TEST(OwnGenerators, AChainOfDrawsIsOneVar) {
  expect_rewrite(own, R"(graph g(%x: f32[2]) {
  const %c0: i32[4] = 01000000000000000000000000000000
  %0, %1 = rng_uniform %c0 {shape=[2]}
  %2, %3, %4 = dropout %x, %1
  %5 = add %2, %0
} returns(%5)
)",
                 R"(graph g(%x: f32[2]) vars(%generator0: i32[4]) {
  %0, %1 = rng_uniform %generator0 {shape=[2]} token(entry -> %t0)
  %2, %3, %4 = dropout %x, %1 token(%t0 -> %t1)
  %5 = add %2, %0
} returns(%5) commits(%generator0 <- %4)
)");
}

TEST(OwnGenerators, WhatNoOutputNeedsIsNotDrawn) {
  expect_rewrite(own, R"(graph g() {
  const %c0: i32[4] = 01000000000000000000000000000000
  %0, %1 = rng_uniform %c0 {shape=[2]}
  %2, %3 = rng_uniform %1 {shape=[2]}
} returns(%0)
)",
                 R"(graph g() vars(%generator0: i32[4]) {
  %0, %1 = rng_uniform %generator0 {shape=[2]} token(entry -> %t0)
  %2, %3 = rng_uniform %1 {shape=[2]} token(%t0 -> %t1)
} returns(%0) commits(%generator0 <- %1)
)");
}

TEST(OwnGenerators, ASkipEndsADrawThatGivesNoState) {
  expect_rewrite(own, R"(graph g(%w: f32[1,3]) {
  const %c0: i32[4] = 01000000000000000000000000000000
  %0 = rng_multinomial %w, %c0 {num_samples=2}
  %1 = rng_skip %c0 {n=8}
} returns(%0)
)",
                 R"(graph g(%w: f32[1,3]) vars(%generator0: i32[4]) {
  %0 = rng_multinomial %w, %generator0 {num_samples=2} token(entry -> %t0)
  %1 = rng_skip %generator0 {n=8}
} returns(%0) commits(%generator0 <- %1)
)");
}

TEST(OwnGenerators, LeavesForksAndOtherConstantsAlone) {
  expect_unchanged(own, R"(graph g() {
  const %c0: i32[4] = 01000000000000000000000000000000
  const %c1: i32[4] = 02000000000000000000000000000000
  %0, %1 = rng_uniform %c0 {shape=[2]}
  %2, %3 = rng_uniform %c0 {shape=[2]}
  %4 = add %0, %2
  %5 = neg %c1
} returns(%4, %5)
)");
}

}  // namespace
}  // namespace mge::pass
