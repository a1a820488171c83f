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

TEST(FuseElementwise, AReductionIsAStep) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[4,300], %y: f32[300]) {
  %0 = sub %x, %y
  %1 = square %0
  %2 = reduce %1 {mode="mean", axes=[1]}
  %3 = cumsum %2
} returns(%3)
)ir",
                 R"ir(graph g(%x: f32[4,300], %y: f32[300]) {
  %0 = fused %x, %y {region="(float32,float32) t0=sub(i0,i1) t1=square(t0) t2=reduce(t1){mode=\"mean\",axes=[1],keepdims=false}"}
  %1 = cumsum %0
} returns(%1)
)ir");
}

TEST(FuseElementwise, WhatFollowsAReductionComesAlong) {
  // scale, shift, residual, activation: also over the first axis, with a result on the way that is read elsewhere
  expect_rewrite(fuse, R"ir(graph g(%x: f32[64,300], %s: f32[300], %b: f32[1], %r: f32[300]) {
  %0 = square %x
  %1 = reduce %0 {axes=[0]}
  %2 = mul %1, %s
  %3 = add %2, %b
  %4 = add %3, %r
  %5 = relu %4
} returns(%5, %3)
)ir",
                 R"ir(graph g(%x: f32[64,300], %s: f32[300], %b: f32[1], %r: f32[300]) {
  %0, %1 = fused %x, %s, %b, %r {region="(float32,float32,float32,float32) t0=square(i0) t1=reduce(t0){mode=\"sum\",axes=[0],keepdims=false} t2=mul(t1,i1) t3=add(t2,i2) t4=add(t3,i3) t5=relu(t4) -> t3,t5"}
} returns(%1, %0)
)ir");
  // An operand that is made after the reduction: what reads it stays out.
  expect_rewrite(fuse, R"ir(graph g(%x: f32[64,300]) {
  %0 = square %x
  %1 = reduce %0 {axes=[0]}
  %2 = neg %1
  %3 = cumsum %2 {axis=0}
  %4 = add %2, %3
} returns(%4)
)ir",
                 R"ir(graph g(%x: f32[64,300]) {
  %0 = fused %x {region="(float32) t0=square(i0) t1=reduce(t0){mode=\"sum\",axes=[0],keepdims=false} t2=neg(t1)"}
  %1 = cumsum %0
  %2 = add %0, %1
} returns(%2)
)ir");
}

TEST(FuseElementwise, ASoftmaxWrittenInSingleOpsIsOneNode) {
  expect_rewrite(fuse, R"ir(graph g(%x: f32[8,300]) {
  %0 = reduce %x {mode="max", axes=[1], keepdims=true}
  %1 = sub %x, %0
  %2 = exp %1
  %3 = reduce %2 {axes=[1], keepdims=true}
  %4 = div %2, %3     loc a.py:5
} returns(%4)
)ir",
                 R"ir(graph g(%x: f32[8,300]) {
  %0 = fused %x {region="(float32) t0=reduce(i0){mode=\"max\",axes=[1],keepdims=true} t1=sub(i0,t0) t2=exp(t1) t3=reduce(t2){mode=\"sum\",axes=[1],keepdims=true} t4=div(t2,t3)"}  loc a.py:5
} returns(%0)
)ir");
}

TEST(FuseElementwise, RowsThatWouldNotBeOnePass) {
  // Over the first axis, of rows too short, or where somebody else needs to be in between.
  expect_unchanged(fuse,
                   "graph g(%x: f32[300,400]) {\n  %0 = reduce %x {axes=[0], keepdims=true}\n  %1 = sub %x, %0\n} "
                   "returns(%1)\n");
  expect_unchanged(fuse,
                   "graph g(%x: f32[300,8]) {\n  %0 = reduce %x {axes=[1], keepdims=true}\n  %1 = sub %x, %0\n} "
                   "returns(%1)\n");
  expect_unchanged(
      fuse,
      "graph g(%x: f32[64,64]) {\n  %0 = reduce %x {axes=[1], keepdims=true}\n  %1 = matmul %x, %0\n  %2 = "
      "sub %x, %1\n} returns(%2)\n");
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
