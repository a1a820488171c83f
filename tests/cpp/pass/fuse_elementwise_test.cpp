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

TEST(FuseElementwise, WhatIsReadOutsideIsAResultToo) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4,300]) vars(%w: f32[4,300]) {
  %0 = exp %x
  %1 = neg %0
  %w1 = mul %1, %w
  %3 = abs %w1
  %4 = matmul %1, %0 {tb=true}
} returns(%3, %4) commits(%w <- %w1)
)ir",
                 R"ir(graph g(%x: f32[4,300]) vars(%w: f32[4,300]) {
  %0, %1, %w1, %2 = fused %x, %w {region="(float32,float32) t0=exp(i0) t1=neg(t0) t2=mul(t1,i1) t3=abs(t2) -> t0,t1,t2,t3"}
  %3 = matmul %1, %0 {tb=true}
} returns(%2, %3) commits(%w <- %w1)
)ir");
}

TEST(FuseElementwise, LargeTensorsHaveOneResult) {
  expect_unchanged(fuse, "graph g(%x: f32[100,1000]) {\n  %0 = exp %x\n  %1 = neg %0\n} returns(%1, %0)\n");
}

TEST(FuseElementwise, TwoEndsOfOneValue) {
  // neg stands before the last op and reads %0: it comes along.
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4], %y: f32[4]) {
  %0 = exp %x
  %1 = neg %0
  %2 = mul %0, %y
} returns(%1, %2)
)ir",
                 R"ir(graph g(%x: f32[4], %y: f32[4]) {
  %0, %1 = fused %x, %y {region="(float32,float32) t0=exp(i0) t1=neg(t0) t2=mul(t0,i1) -> t1,t2"}
} returns(%0, %1)
)ir");
}

TEST(FuseElementwise, StopsAtShapesAndAtReadersBeforeItsPlace) {
  expect_unchanged(fuse, "graph g(%x: f32[4], %y: f32[3,4]) {\n  %0 = exp %x\n  %1 = add %0, %y\n} returns(%1)\n");
  expect_unchanged(
      fuse, "graph g(%x: f32[4,4]) {\n  %0 = exp %x\n  %1 = reduce %0 {axes=[0]}\n  %2 = neg %1\n} returns(%2)\n");
  // The matmul would have to wait for the add.
  expect_unchanged(fuse,
                   "graph g(%x: f32[4,4]) {\n  %0 = exp %x\n  %1 = matmul %0, %x\n  %2 = neg %0\n} returns(%1, %2)\n");
}

TEST(FuseElementwise, AReductionEndsARegion) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4,300], %y: f32[300]) {
  %0 = sub %x, %y
  %1 = square %0
  %2 = reduce %1 {mode="mean", axes=[1]}
  %3 = neg %2
} returns(%3)
)ir",
                 R"ir(graph g(%x: f32[4,300], %y: f32[300]) {
  %0 = fused %x, %y {region="(float32,float32) t0=sub(i0,i1) t1=square(t0) t2=reduce(t1){mode=\"mean\",axes=[1],keepdims=false}"}
  %1 = neg %0
} returns(%1)
)ir");
}

TEST(FuseElementwise, ASmallReductionComesToItsOperand) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[32,300], %d: f32[32,300]) {
  %0 = silu_grad %x, %d
  %1 = matmul %0, %x {tb=true}
  %2 = reduce %0 {axes=[0]}
} returns(%1, %2)
)ir",
                 R"ir(graph g(%x: f32[32,300], %d: f32[32,300]) {
  %0, %1 = fused %x, %d {region="(float32,float32) t0=silu_grad(i0,i1) t1=reduce(t0){mode=\"sum\",axes=[0],keepdims=false} -> t0,t1"}
  %2 = matmul %0, %x {tb=true}
} returns(%2, %1)
)ir");
}

TEST(FuseElementwise, SomeReductionsAreBetterLeftAlone) {
  EXPECT_EQ(refuse_reduction({8, 300}, 0b10), nullptr);
  EXPECT_EQ(refuse_reduction({8, 300}, 0b11), nullptr);
  EXPECT_EQ(refuse_reduction({8, 300}, 0b01), nullptr);
  EXPECT_STREQ(refuse_reduction({8, 30}, 0b01), "rows of few elements, each of which would be a tile of its own");
  EXPECT_STREQ(refuse_reduction({8, 1}, 0b10), "nothing is added up");
  EXPECT_STREQ(refuse_reduction({0, 3}, 0b01), "nothing is added up");
  EXPECT_STREQ(refuse_reduction({}, 0), "nothing is added up");
  EXPECT_STREQ(refuse_reduction({2, 8, 9, 9}, 0b1101),
               "over the pixels of a channel: op reduce reads them channels-last");
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
