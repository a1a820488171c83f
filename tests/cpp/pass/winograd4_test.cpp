#include "pass/winograd4.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

const std::string kHead = "graph g(%x: f32[1,16,8,8], %w: f32[16,16,3,3], %b: f32[1,16,1,1]) {\n";

TEST(Winograd4, AsksInConvolutionsThatCan) {
  expect_rewrite(
      winograd4, kHead + "  %y = conv2d %x, %w, %b {pad=[1,1]}  loc net.py:3\n} returns(%y)\n",
      kHead + "  %y = conv2d_fused %x, %w, %b {pad=[1,1], has_bias=true, tile=4}  loc net.py:3\n} returns(%y)\n");
  expect_rewrite(winograd4, kHead + "  %y = conv2d_fused %x, %w {act=\"relu\"}\n} returns(%y)\n",
                 kHead + "  %y = conv2d_fused %x, %w {act=\"relu\", tile=4}\n} returns(%y)\n");
  for (const char* other : {"{stride=[2,2]}", "{dilate=[2,2]}"})
    expect_unchanged(winograd4, kHead + "  %y = conv2d %x, %w " + other + "\n} returns(%y)\n");
}

}  // namespace
}  // namespace mge::pass
