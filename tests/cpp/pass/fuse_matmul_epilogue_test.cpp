#include "pass/fuse_matmul_epilogue.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

const std::string kHead =
    "graph g(%x: f32[2,5,3], %w: f32[4,3], %b: f32[4], %s: f32[4], %m: f32[5,4], %r: f32[2,5,4], %one: f32[]) {\n";

TEST(FuseMatmulEpilogue, TakesAWholeChain) {
  expect_rewrite(
      fuse_matmul_epilogue, kHead + R"(  %0 = matmul %x, %w, %b {tb=true}  loc net.py:3
  %1 = mul %0, %one             loc net.py:4
  %2 = add %m, %1               loc net.py:4
  %3 = gelu %2                  loc net.py:5
  %4 = mul %3, %s               loc net.py:6
  %5 = add %4, %s               loc net.py:6
  %y = add %r, %5               loc net.py:7
} returns(%y)
)",
      kHead +
          "  %y = matmul_fused %x, %w, %b, %one, %m, %s, %r {tb=true, has_bias=true, steps=\"mul(y,0) add(1,y) "
          "gelu(y) mul(y,2) add(y,2) add(3,y)\"}  loc net.py:3\n} returns(%y)\n");
}

// The slope of an activation reads what the forward pass left, and the product as its second operand.
TEST(FuseMatmulEpilogue, TakesTheSlopeOfAnActivation) {
  expect_rewrite(fuse_matmul_epilogue,
                 kHead + "  %0 = matmul %x, %w {tb=true}\n  %y = gelu_grad %r, %0\n} returns(%y)\n",
                 kHead + "  %y = matmul_fused %x, %w, %r {tb=true, steps=\"gelu_grad(0,y)\"}\n} returns(%y)\n");
}

TEST(FuseMatmulEpilogue, AnIntermediateWithAnotherReaderStops) {
  expect_unchanged(fuse_matmul_epilogue,
                   kHead + "  %0 = matmul %x, %w {tb=true}\n  %1 = relu %0\n  %2 = neg %0\n} returns(%1, %2)\n");
  expect_rewrite(
      fuse_matmul_epilogue,
      kHead + "  %0 = matmul %x, %w {tb=true}\n  %1 = add %0, %s\n  %2 = gelu %1\n} returns(%2, %1)\n",
      kHead + "  %0 = matmul_fused %x, %w, %s {tb=true, steps=\"add(y,0)\"}\n  %1 = gelu %0\n} returns(%1, %0)\n");
}

TEST(FuseMatmulEpilogue, WhatIsNoStepStays) {
  for (const char* last : {"isnan %0", "typecvt %0 {dtype=float16}", "softmax %0 {axis=-1}", "add %0, %wide"})
    expect_unchanged(fuse_matmul_epilogue, kHead + "  %wide = broadcast_to %r {shape=[3,2,5,4]}\n" +
                                               "  %0 = matmul %x, %w {tb=true}\n  %y = " + last + "\n} returns(%y)\n");
  // A column, and a shape that stretches the middle.
  expect_unchanged(fuse_matmul_epilogue,
                   "graph g(%x: f32[2,5,3], %w: f32[4,3], %c: f32[5,1]) {\n  %0 = matmul %x, %w {tb=true}\n"
                   "  %y = add %0, %c\n} returns(%y)\n");
  expect_unchanged(fuse_matmul_epilogue,
                   "graph g(%x: f32[2,5,3], %w: f32[4,3], %c: f32[2,1,4]) {\n  %0 = matmul %x, %w {tb=true}\n"
                   "  %y = add %0, %c\n} returns(%y)\n");
  // 16-bit products round once, their chains at every step.
  expect_unchanged(fuse_matmul_epilogue,
                   "graph g(%x: f16[5,3], %w: f16[4,3]) {\n  %0 = matmul %x, %w {tb=true}\n  %y = relu %0\n} "
                   "returns(%y)\n");
}

// Of two products whose results are added, the later takes the sum: the node stands where its product stood.
TEST(FuseMatmulEpilogue, AnOperandMustBeThereBefore) {
  expect_rewrite(fuse_matmul_epilogue,
                 kHead +
                     "  %0 = matmul %x, %w {tb=true}\n  %1 = matmul %x, %w, %b {tb=true}\n  %2 = add %0, %1\n"
                     "  %y = tanh %2\n} returns(%y)\n",
                 kHead +
                     "  %0 = matmul %x, %w {tb=true}\n  %y = matmul_fused %x, %w, %b, %0 {tb=true, has_bias=true, "
                     "steps=\"add(0,y) tanh(y)\"}\n} returns(%y)\n");
  expect_unchanged(fuse_matmul_epilogue,
                   kHead + "  %0 = matmul %x, %w {tb=true}\n  %1 = exp %r\n  %y = add %0, %1\n} returns(%y)\n");
}

TEST(FuseMatmulEpilogue, FourOperandsAndNoMore) {
  expect_rewrite(
      fuse_matmul_epilogue,
      "graph g(%x: f32[5,3], %w: f32[4,3], %a: f32[4], %b: f32[4], %c: f32[4], %d: f32[4], %e: f32[4]) {\n"
      "  %0 = matmul %x, %w {tb=true}\n  %1 = add %0, %a\n  %2 = mul %1, %b\n  %3 = add %2, %c\n  %4 = mul %3, %d\n"
      "  %y = add %4, %e\n} returns(%y)\n",
      "graph g(%x: f32[5,3], %w: f32[4,3], %a: f32[4], %b: f32[4], %c: f32[4], %d: f32[4], %e: f32[4]) {\n"
      "  %0 = matmul_fused %x, %w, %a, %b, %c, %d {tb=true, steps=\"add(y,0) mul(y,1) add(y,2) mul(y,3)\"}\n"
      "  %y = add %0, %e\n} returns(%y)\n");
}

}  // namespace
}  // namespace mge::pass
