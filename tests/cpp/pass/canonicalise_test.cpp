#include "pass/canonicalise.h"

#include "ir/explain.h"
#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

bool run(Graph& g) { return canonicalise(g); }
bool any_size(Graph& g) { return canonicalise(g, false); }

std::string graph(const std::string& in, const std::string& body, const std::string& out) {
  return "graph g(" + in + ") {\n" + body + "} returns(" + out + ")\n";
}
// `%y = op ...` lines before and after, of one f32[2,3] input.
void becomes(const std::string& before, const std::string& after, const std::string& in = "%x: f32[2,3]") {
  expect_rewrite(run, graph(in, before, "out=%y"), after);
}

TEST(Canonicalise, WhatUndoesItselfGoes) {
  for (const char* body : {
           "  %a = neg %x\n  %y = neg %a\n",
           "  %a = transpose %x {perm=[1,0]}\n  %y = transpose %a {perm=[1,0]}\n",
           "  %y = transpose %x {perm=[0,1]}\n",
           "  %a = reshape %x {shape=[6]}\n  %y = reshape %a {shape=[2,3]}\n",
           "  %y = reshape %x {shape=[2,-1]}\n",
           "  %a = expand_dims %x {axes=[1]}\n  %y = squeeze %a {axes=[1]}\n",
           "  %a = typecvt %x {dtype=float64}\n  %y = typecvt %a {dtype=float32}\n",
           "  %y = typecvt %x {dtype=float32}\n",
           "  %y = broadcast_to %x {shape=[2,3]}\n",
           "  %y = slice %x {axes=[0,1], starts=[0,0], stops=[2,3], steps=[1,1]}\n",
           "  %y = slice %x {axes=[0], starts=[0], stops=[2147483647], steps=[1], python=true}\n",
           "  %y = copy %x\n",
           "  %y = concat %x {axis=1}\n",
           "  %y = maximum %x, %x\n",
           "  %y = sum_to %x {shape=[2,3]}\n",
       })
    becomes(body, "graph g(%x: f32[2,3]) {\n} returns(out=%x)\n");
}

// An op that is moved before a broadcast still says what it was made of.
TEST(Canonicalise, OriginsOfWhatIsComputedBeforeABroadcast) {
  Graph g =
      ir::parse(graph("%x: f32[3]", "  %a = broadcast_to %x {shape=[2,3]}\n  %s = square %a\n  %y = exp %s\n", "%y"));
  g.add_origin(g.order()[1], {"pow", "pow(%a, 2)", {}});
  ASSERT_TRUE(run(g));
  std::vector<std::string> told;
  for (ir::NodeId n : g.order()) told.push_back(ir::tell(g, n).op);
  EXPECT_EQ(told, (std::vector<std::string>{"pow", "broadcast_to", "exp"}));
}

TEST(Canonicalise, ChainsOfViewsAreOneView) {
  becomes("  %a = reshape %x {shape=[6]}\n  %b = expand_dims %a {axes=[0]}\n  %y = reshape %b {shape=[3,2]}\n",
          "graph g(%x: f32[2,3]) {\n  %y = reshape %x {shape=[3,2]}\n} returns(out=%y)\n");
  becomes("  %a = transpose %x {perm=[1,2,0]}\n  %y = transpose %a {perm=[1,2,0]}\n",
          "graph g(%x: f32[2,3,4]) {\n  %y = transpose %x {perm=[2,0,1]}\n} returns(out=%y)\n", "%x: f32[2,3,4]");
  becomes("  %a = broadcast_to %x {shape=[2,3]}\n  %y = broadcast_to %a {shape=[4,2,3]}\n",
          "graph g(%x: f32[3]) {\n  %y = broadcast_to %x {shape=[4,2,3]}\n} returns(out=%y)\n", "%x: f32[3]");
  becomes("  %y = reduce %x {axes=[1]}\n",
          "graph g(%x: f32[2,1]) {\n  %y = reshape %x {shape=[2]}\n} returns(out=%y)\n", "%x: f32[2,1]");
}

TEST(Canonicalise, ShuffledChannelsAreWrittenOnce) {
  const std::string in = "%a: f32[2,3,4,5], %b: f32[2,3,4,5]", joined = "  %c = concat %a, %b {axis=1}\n";
  const std::string groups = "  %d = reshape %c {shape=[2,2,3,4,5]}\n",
                    turned = "  %e = transpose %d {perm=[0,2,1,3,4]}\n", last = "  %y = reshape %e {shape=[2,6,4,5]}\n";
  becomes(joined + groups + turned + last,
          "graph g(" + in +
              ") {\n  %0 = reshape %a {shape=[2,3,1,4,5]}\n  %1 = reshape %b {shape=[2,3,1,4,5]}\n"
              "  %2 = concat %0, %1 {axis=2}\n  %y = reshape %2 {shape=[2,6,4,5]}\n} returns(out=%y)\n",
          in);
  // Three groups of two channels, other axes, and what somebody else reads.
  for (const std::string& other : {joined + "  %d = reshape %c {shape=[2,3,2,4,5]}\n" + turned + last,
                                   joined + groups + "  %e = transpose %d {perm=[0,1,2,4,3]}\n" + last})
    expect_unchanged(run, graph(in, other, "out=%y"));
  expect_unchanged(run, graph(in, joined + groups + turned + last, "out=%y, joined=%c"));
}

// The copy that a reshape of a transposed tensor makes is one that a product sees.
TEST(Canonicalise, ReshapesOfStridedTensorsStay) {
  expect_unchanged(run, graph("%x: f32[2,3]",
                              "  %a = transpose %x {perm=[1,0]}\n  %b = reshape %a {shape=[6]}\n"
                              "  %y = reshape %b {shape=[3,2]}\n",
                              "%y"));
}

TEST(Canonicalise, CastsMergeOnlyWhereTheFirstIsExact) {
  becomes("  %a = typecvt %x {dtype=float32}\n  %y = typecvt %a {dtype=int32}\n",
          "graph g(%x: u8[3]) {\n  %y = typecvt %x {dtype=int32}\n} returns(out=%y)\n", "%x: u8[3]");
  for (const char* x : {"i32[3]", "f64[3]", "i64[3]"})
    expect_unchanged(run, graph("%x: " + std::string(x),
                                "  %a = typecvt %x {dtype=float32}\n  %y = typecvt %a {dtype=float64}\n", "%y"));
  expect_unchanged(run,
                   graph("%x: f32[3]", "  %a = typecvt %x {dtype=float16}\n  %y = typecvt %a {dtype=float32}\n", "%y"));
}

TEST(Canonicalise, SignsThatNobodySees) {
  becomes("  %a = neg %x\n  %y = abs %a\n", "graph g(%x: f32[2,3]) {\n  %y = abs %x\n} returns(out=%y)\n");
  becomes("  %a = abs %x\n  %y = square %a\n", "graph g(%x: f32[2,3]) {\n  %y = square %x\n} returns(out=%y)\n");
  becomes("  %a = relu %x\n  %y = relu6 %a\n", "graph g(%x: f32[2,3]) {\n  %y = relu6 %x\n} returns(out=%y)\n");
  expect_unchanged(run, graph("%x: u8[3]", "  %a = neg %x\n  %y = abs %a\n", "%y"));
  becomes("  %a = logical_not %c\n  %y = where %a, %x, %z\n",
          "graph g(%c: bool[3], %x: f32[3], %z: f32[3]) {\n  %y = where %c, %z, %x\n} returns(out=%y)\n",
          "%c: bool[3], %x: f32[3], %z: f32[3]");
}

TEST(Canonicalise, ConstantsStandOnTheRight) {
  expect_rewrite(run,
                 "graph g(%x: f32[2]) {\n  const %c: f32[] = 0000803f\n  %0 = add %c, %x\n  %1 = sub %c, %0\n} "
                 "returns(%1)\n",
                 "graph g(%x: f32[2]) {\n  const %c: f32[] = 0000803f\n  %0 = add %x, %c\n  %1 = sub %c, %0\n} "
                 "returns(%1)\n");
}

TEST(Canonicalise, ReadersBroadcastForThemselves) {
  becomes("  %a = broadcast_to %x {shape=[2,3]}\n  %y = add %a, %z\n",
          "graph g(%x: f32[3], %z: f32[2,3]) {\n  %y = add %x, %z\n} returns(out=%y)\n", "%x: f32[3], %z: f32[2,3]");
  // Here the broadcast decides the shape.
  expect_unchanged(run,
                   graph("%x: f32[3], %z: f32[3]", "  %a = broadcast_to %x {shape=[2,3]}\n  %y = add %a, %z\n", "%y"));
  becomes("  %a = broadcast_to %x {shape=[2,3]}\n  %b = exp %a\n  %y = add %b, %z\n",
          "graph g(%x: f32[3], %z: f32[2,3]) {\n  %0 = exp %x\n  %y = add %0, %z\n} returns(out=%y)\n",
          "%x: f32[3], %z: f32[2,3]");
}

TEST(Canonicalise, NewNodesKeepTheLine) {
  becomes("  %a = neg %x loc net.py:1\n  %y = abs %a loc net.py:2\n",
          "graph g(%x: f32[2,3]) {\n  %y = abs %x                                       loc net.py:2\n} "
          "returns(out=%y)\n");
}

// For any sizes: what is true for those of the recorded call need not be for others.
TEST(Canonicalise, WhatGoesBySizesWaitsForThem) {
  expect_unchanged(any_size, graph("%x: f32[2,3], %z: f32[2,3]",
                                   "  %a = reshape %x {shape=[2,3]}\n  %b = broadcast_to %a {shape=[2,3]}\n"
                                   "  %c = slice %b {axes=[0], starts=[0], stops=[2], steps=[1]}\n"
                                   "  %d = broadcast_to %z {shape=[2,3]}\n  %y = add %d, %c\n",
                                   "%y"));
  expect_rewrite(any_size, graph("%x: f32[2,3]", "  %a = neg %x\n  %y = neg %a\n", "out=%y"),
                 "graph g(%x: f32[2,3]) {\n} returns(out=%x)\n");
}

}  // namespace
}  // namespace mge::pass
