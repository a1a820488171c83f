#include "pass/remove_dropout.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(RemoveDropout, TheOperandAndTheStateGoOn) {
  expect_rewrite(remove_dropout, R"(graph g(%x: f32[4]) vars(%s: i32[4]) {
  %0, %1, %2 = dropout %x, %s
  %3, %4, %5 = dropout %0, %2
  %y = relu %3
} returns(%y) commits(%s <- %5)
)",
                 "graph g(%x: f32[4]) vars(%s: i32[4]) {\n  %y = relu %x\n} returns(%y) commits(%s <- %s)\n");
}

TEST(RemoveDropout, OneThatAGradientReadsStays) {
  expect_unchanged(remove_dropout, R"(graph g(%x: f32[4]) vars(%s: i32[4]) {
  %0, %1, %2 = dropout %x, %s
  %y = mul %0, %1
} returns(%y) commits(%s <- %2)
)");
}

}  // namespace
}  // namespace mge::pass
