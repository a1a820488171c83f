#include "pass/fuse_elementwise.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

bool fuse(Graph& g) { return fuse_elementwise(g); }

TEST(FuseElementwise, AChainBecomesOneNode) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4,5], %y: f32[5], %z: f32[]) {
  %0 = mul %x, %y     loc a.py:1
  %1 = add %0, %z     loc a.py:2
  %2 = relu %1        loc a.py:3
} returns(%2)
)ir",
                 R"ir(graph g(%x: f32[4,5], %y: f32[5], %z: f32[]) {
  %0 = fused %x, %y, %z {region="(float32,float32,float32) t0=mul(i0,i1) t1=add(t0,i2) t2=relu(t1)"}  loc a.py:3
} returns(%0)
)ir");
}

TEST(FuseElementwise, DiamondsInsideAreFine) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4]) {
  %0 = exp %x
  %1 = neg %0
  %2 = mul %0, %1
} returns(%2)
)ir",
                 R"ir(graph g(%x: f32[4]) {
  %0 = fused %x {region="(float32) t0=exp(i0) t1=neg(t0) t2=mul(t0,t1)"}
} returns(%0)
)ir");
}

TEST(FuseElementwise, AttributesAndOtherDtypes) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4], %m: bool[4]) {
  %0 = lt %x, %x
  %1 = logical_and %0, %m
  %2 = typecvt %1 {dtype=int32}
} returns(%2)
)ir",
                 R"ir(graph g(%x: f32[4], %m: bool[4]) {
  %0 = fused %x, %m {region="(float32,bool) t0=lt(i0,i0) t1=logical_and(t0,i1) t2=typecvt(t1){dtype=int32}"}
} returns(%0)
)ir");
}

TEST(FuseElementwise, StopsAtOutsideReadersAndShapes) {
  expect_unchanged(fuse, "graph g(%x: f32[4]) {\n  %0 = exp %x\n  %1 = neg %0\n} returns(%1, %0)\n");
  expect_unchanged(fuse, "graph g(%x: f32[4], %y: f32[3,4]) {\n  %0 = exp %x\n  %1 = add %0, %y\n} returns(%1)\n");
  expect_unchanged(
      fuse, "graph g(%x: f32[4,4]) {\n  %0 = exp %x\n  %1 = reduce %0 {axes=[0]}\n  %2 = neg %1\n} returns(%2)\n");
}

TEST(FuseElementwise, AReaderOutsideWithAWayBackInStaysOut) {
  // %0 feeds the reduction, which feeds the root: taking %0 in would make a cycle.
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4,4]) {
  %0 = exp %x
  %1 = reduce %0 {axes=[0], keepdims=true}
  %2 = neg %0
  %3 = add %2, %1
} returns(%3)
)ir",
                 R"ir(graph g(%x: f32[4,4]) {
  %0 = exp %x
  %1 = reduce %0 {axes=[0], keepdims=true}
  %2 = fused %0, %1 {region="(float32,float32) t0=neg(i0) t1=add(t0,i1)"}
} returns(%2)
)ir");
}

TEST(FuseElementwise, AsksWhatCanRun) {
  auto no_exp = [](Graph& g) {
    return fuse_elementwise(
        g, [](const OpDef& op, const AttrsBase*, std::span<const DType>, DType) { return op.name != "exp"; });
  };
  expect_rewrite(no_exp,
                 "graph g(%x: f32[4]) {\n  %0 = neg %x\n  %1 = exp %0\n  %2 = neg %1\n  %3 = abs %2\n} returns(%3)\n",
                 "graph g(%x: f32[4]) {\n  %0 = neg %x\n  %1 = exp %0\n  %2 = fused %1 {region=\"(float32) t0=neg(i0) "
                 "t1=abs(t0)\"}\n} returns(%2)\n");
}

TEST(FuseElementwise, LongChainsAreCut) {
  std::string text = "graph g(%x: f32[4]) {\n  %0 = neg %x\n";
  for (int i = 1; i < 60; ++i) text += format("  %{} = neg %{}\n", i, i - 1);
  Graph g = ir::parse(text + "} returns(%59)\n");
  EXPECT_TRUE(fuse(g));
  ir::verify(g);
  EXPECT_EQ(g.n_nodes(), 3u);
  EXPECT_EQ(ir::print(ir::parse(ir::print(g))), ir::print(g));
}

}  // namespace
}  // namespace mge::pass
