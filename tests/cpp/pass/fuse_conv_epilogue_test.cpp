#include "pass/fuse_conv_epilogue.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

const std::string kHead =
    "graph g(%x: f32[1,3,8,8], %w: f32[4,3,3,3], %b: f32[1,4,1,1], %s: f32[1,4,1,1], %t: f32[1,4,1,1], %r: "
    "f32[1,4,6,6]) {\n";

TEST(FuseConvEpilogue, TakesTheWholeChain) {
  expect_rewrite(fuse_conv_epilogue, kHead + R"(  %0 = conv2d %x, %w {stride=[1,1]}      loc net.py:3
  %1 = add %0, %b               loc net.py:3
  %2 = mul %1, %s               loc net.py:4
  %3 = add %t, %2               loc net.py:4
  %4 = neg %r
  %5 = add %4, %3               loc net.py:5
  %y = relu %5                  loc net.py:6
} returns(%y)
)",
                 kHead + R"(  %0 = neg %r
  %y = conv2d_fused %x, %w, %b, %s, %t, %0 {has_bias=true, has_scale=true, has_add=true, act="relu"}  loc net.py:3
} returns(%y)
)");
}

TEST(FuseConvEpilogue, EachPartAlone) {
  expect_rewrite(fuse_conv_epilogue,
                 kHead + "  %0 = conv2d %x, %w {pad=[1,1], stride=[2,2]}\n  %y = relu %0\n} returns(%y)\n",
                 kHead + "  %y = conv2d_fused %x, %w {stride=[2,2], pad=[1,1], act=\"relu\"}\n} returns(%y)\n");
  expect_rewrite(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w, %b\n  %y = relu %0\n} returns(%y)\n",
                 kHead + "  %y = conv2d_fused %x, %w, %b {has_bias=true, act=\"relu\"}\n} returns(%y)\n");
  expect_rewrite(fuse_conv_epilogue,
                 kHead + "  %0 = conv2d %x, %w\n  %1 = mul %s, %0\n  %y = add %1, %t\n} returns(%y)\n",
                 kHead + "  %y = conv2d_fused %x, %w, %s, %t {has_scale=true}\n} returns(%y)\n");
  expect_rewrite(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w\n  %y = add %r, %0\n} returns(%y)\n",
                 kHead + "  %y = conv2d_fused %x, %w, %r {has_add=true}\n} returns(%y)\n");
}

TEST(FuseConvEpilogue, AnIntermediateWithAnotherReaderStops) {
  expect_unchanged(fuse_conv_epilogue,
                   kHead + "  %0 = conv2d %x, %w\n  %1 = relu %0\n  %2 = neg %0\n} returns(%1, %2)\n");
  expect_unchanged(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w\n  %1 = relu %0\n} returns(%1, %0)\n");
  expect_rewrite(fuse_conv_epilogue,
                 kHead + "  %0 = conv2d %x, %w\n  %p = add %0, %b\n  %y = relu %p\n} returns(%y, %p)\n",
                 kHead + "  %p = conv2d_fused %x, %w, %b {has_bias=true}\n  %y = relu %p\n} returns(%y, %p)\n");
}

TEST(FuseConvEpilogue, AnyElementwiseOpOfOneOperandIsAnActivation) {
  for (const char* act : {"relu6", "hswish", "silu", "sigmoid", "gelu", "tanh", "abs"})
    expect_rewrite(fuse_conv_epilogue,
                   kHead + "  %0 = conv2d %x, %w, %b\n  %1 = add %0, %r\n  %y = " + act + " %1\n} returns(%y)\n",
                   kHead + "  %y = conv2d_fused %x, %w, %b, %r {has_bias=true, has_add=true, act=\"" + act +
                       "\"}\n} returns(%y)\n");
  expect_unchanged(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w\n  %y = isnan %0\n} returns(%y)\n");
  expect_unchanged(fuse_conv_epilogue,
                   kHead + "  %0 = conv2d %x, %w\n  %y = typecvt %0 {dtype=float16}\n} returns(%y)\n");
}

TEST(FuseConvEpilogue, PreluByAConstantIsAnActivation) {
  const std::string half = kHead + "  const %c: f32[] = 0000003f\n";
  expect_rewrite(fuse_conv_epilogue, half + "  %0 = conv2d %x, %w\n  %y = prelu %0, %c\n} returns(%y)\n",
                 half + "  %y = conv2d_fused %x, %w {act=\"prelu\", slope=0.5}\n} returns(%y)\n");
  // By what is not known yet, and as the slope itself.
  expect_unchanged(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w\n  %y = prelu %0, %s\n} returns(%y)\n");
  expect_unchanged(fuse_conv_epilogue, half + "  %0 = conv2d %x, %w\n  %y = prelu %c, %0\n} returns(%y)\n");
}

TEST(FuseConvEpilogue, ScaleWithoutShiftStays) {
  expect_unchanged(fuse_conv_epilogue,
                   kHead + "  %0 = conv2d %x, %w\n  %1 = mul %0, %s\n  %2 = relu %1\n} returns(%2)\n");
}

TEST(FuseConvEpilogue, DoublingIsNoAdd) {
  expect_unchanged(fuse_conv_epilogue, kHead + "  %0 = conv2d %x, %w\n  %1 = add %0, %0\n} returns(%1)\n");
}

TEST(FuseConvEpilogue, ResidualOfTwoConvolutionsFusesOneInto) {
  expect_rewrite(
      fuse_conv_epilogue,
      kHead + "  %0 = conv2d %x, %w\n  %1 = conv2d %x, %w\n  %2 = add %0, %1\n  %y = relu %2\n} returns(%y)\n",
      kHead + "  %0 = conv2d %x, %w\n  %y = conv2d_fused %x, %w, %0 {has_add=true, act=\"relu\"}\n} returns(%y)\n");
}

}  // namespace
}  // namespace mge::pass
