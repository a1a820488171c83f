#include "pass/fuse_grain.h"

#include "pass/options.h"
#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

bool run(Graph& g) { return fuse_grain(g); }
bool any_size(Graph& g) { return fuse_grain(g, false); }

TEST(FuseGrain, GlobalPoolingWrittenWithReshapes) {
  expect_rewrite(run, R"(graph g(%x: f32[8,64,7,7]) {
  const %c: f32[] = 00004442
  %0 = reshape %x {shape=[8,64,49]}
  %1 = reduce %0 {axes=[2]}                         loc net.py:2
  %2 = div %1, %c                                   loc net.py:3
  %3 = reshape %2 {shape=[8,64,1,1]}
} returns(%3)
)",
                 R"(graph g(%x: f32[8,64,7,7]) {
  const %c: f32[] = 00004442
  %0 = reduce %x {mode="mean", axes=[2,3], keepdims=true}  loc net.py:3
} returns(%0)
)");
}

TEST(FuseGrain, OtherCountsAndOtherReshapesStay) {
  expect_unchanged(run, R"(graph g(%x: f32[8,4]) {
  const %c: f32[] = 00000041
  %0 = reduce %x {axes=[1]}
  %1 = div %0, %c
} returns(%1)
)");
  expect_unchanged(run, R"(graph g(%x: f32[8,4,6]) {
  %0 = reshape %x {shape=[8,24]}
  %1 = reduce %0 {axes=[0]}
} returns(%1)
)");
}

TEST(FuseGrain, SumsThatRoundTo16BitsAreAskedFor) {
  const std::string text = R"(graph g(%x: f16[8,4]) {
  const %c: f16[] = 0044
  %0 = reduce %x {axes=[1]}
  %1 = div %0, %c
} returns(out=%1)
)";
  expect_unchanged(run, text);
  expect_rewrite([](Graph& g) { return fuse_grain(g, true, kSumToMean); }, text, R"(graph g(%x: f16[8,4]) {
  const %c: f16[] = 0044
  %0 = reduce %x {mode="mean", axes=[1]}
  %1 = typecvt %0 {dtype=float16}
} returns(out=%1)
)");
}

// For any sizes the count must be computed from them.
TEST(FuseGrain, ForAnySizes) {
  expect_rewrite(any_size, R"(graph g(%x: f32[8,4]) {
  %0 = shape_of %x
  %1 = count_of %0 {axes=[1]}
  %2 = reduce %x {axes=[1]}
  %3 = div %2, %1
} returns(out=%3)
)",
                 "graph g(%x: f32[8,4]) {\n  %0 = reduce %x {mode=\"mean\", axes=[1]}\n} returns(out=%0)\n");
  expect_unchanged(any_size, R"(graph g(%x: f32[8,4]) {
  const %c: f32[] = 00008040
  %0 = reduce %x {axes=[1]}
  %1 = div %0, %c
} returns(%1)
)");
}

}  // namespace
}  // namespace mge::pass
