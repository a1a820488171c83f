#include "pass/fuse_batch_norm.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

const std::string kHead =
    "graph g(%x: f32[2,4,6,6], %w: f32[1,4,1,1], %b: f32[1,4,1,1], %z: f32[2,4,6,6], %gy: f32[2,4,6,6]) {\n";
const std::string kNorm = "  %y, %m, %v, %r = batch_norm_train %x, %w, %b {eps=0.001}  loc net.py:3\n";

TEST(FuseBatchNorm, TakesAdditionAndActivation) {
  expect_rewrite(fuse_batch_norm, kHead + kNorm + "  %a = relu %y  loc net.py:4\n} returns(%a, %m, %v)\n",
                 kHead +
                     "  %a, %m, %v, %r = batch_norm_fused %x, %w, %b {eps=0.001, act=\"relu\"}  loc net.py:3\n"
                     "} returns(%a, %m, %v)\n");
  expect_rewrite(fuse_batch_norm, kHead + kNorm + "  %s = add %z, %y\n  %a = relu6 %s\n} returns(%a)\n",
                 kHead +
                     "  %a, %m, %v, %r = batch_norm_fused %x, %w, %b, %z {eps=0.001, has_add=true, act=\"relu6\"}  loc "
                     "net.py:3\n} returns(%a)\n");
  expect_rewrite(fuse_batch_norm, kHead + kNorm + "  %s = add %y, %z\n} returns(%s)\n",
                 kHead +
                     "  %s, %m, %v, %r = batch_norm_fused %x, %w, %b, %z {eps=0.001, has_add=true}  loc net.py:3\n"
                     "} returns(%s)\n");
}

TEST(FuseBatchNorm, WhatElseReadsTheResultStops) {
  expect_unchanged(fuse_batch_norm, kHead + kNorm + "  %a = relu %y\n  %c = neg %y\n} returns(%a, %c)\n");
  expect_unchanged(fuse_batch_norm, kHead + kNorm + "  %a = relu %y\n} returns(%a, %y)\n");
  expect_unchanged(fuse_batch_norm, kHead + kNorm + "  %a = gelu %y\n} returns(%a)\n");
  expect_unchanged(fuse_batch_norm, kHead + kNorm + "  %a = add %y, %y\n} returns(%a)\n");
  expect_unchanged(fuse_batch_norm, kHead + kNorm + "  %a = add %y, %b\n} returns(%a)\n");
}

// The statistics may be read before the addend is there.
TEST(FuseBatchNorm, AnAddendComputedLaterStays) {
  expect_unchanged(fuse_batch_norm,
                   kHead + kNorm + "  %c = neg %m\n  %d = exp %z\n  %a = add %y, %d\n} returns(%a, %c)\n");
}

// Of two batch norms whose results are added the later one takes the sum: the shortcut of a residual block.
TEST(FuseBatchNorm, TheLaterOfTwoTakesTheSum) {
  expect_rewrite(fuse_batch_norm,
                 kHead + kNorm +
                     "  %y2, %m2, %v2, %r2 = batch_norm_train %z, %w, %b\n  %s = add %y, %y2\n  %a = relu %s\n} "
                     "returns(%a)\n",
                 kHead + kNorm +
                     "  %a, %m2, %v2, %r2 = batch_norm_fused %z, %w, %b, %y {has_add=true, act=\"relu\"}\n} "
                     "returns(%a)\n");
}

const std::string kStep = kHead + kNorm + R"(  %a = relu %y
  %g = relu_grad %a, %gy
  %gx, %gw, %gb = batch_norm_bwd %x, %g, %w, %m, %r  loc net.py:3 (backward)
)";

TEST(FuseBatchNorm, BackwardTakesTheSlopeAndReadsNoResult) {
  expect_rewrite(fuse_batch_norm, kStep + "} returns(%gx, %gw, %gb)\n",
                 kHead + R"(  %a, %m, %v, %r = batch_norm_fused %x, %w, %b {eps=0.001, act="relu"}  loc net.py:3
  %gx, %gw, %gb = batch_norm_fused_bwd %x, %gy, %w, %m, %r, %b {act="relu"}  loc net.py:3 (backward)
} returns(%gx, %gw, %gb)
)");
}

// silu's gradient reads its input: once that is computed again from x, the forward pass may fuse as well.
TEST(FuseBatchNorm, AnActivationWhoseGradientReadsItsInput) {
  expect_rewrite(fuse_batch_norm, kHead + kNorm + R"(  %a = silu %y
  %g = silu_grad %y, %gy
  %gx, %gw, %gb = batch_norm_bwd %x, %g, %w, %m, %r
} returns(%a, %gx, %gw, %gb)
)",
                 kHead + R"(  %a, %m, %v, %r = batch_norm_fused %x, %w, %b {eps=0.001, act="silu"}  loc net.py:3
  %gx, %gw, %gb = batch_norm_fused_bwd %x, %gy, %w, %m, %r, %b {act="silu"}
} returns(%a, %gx, %gw, %gb)
)");
}

TEST(FuseBatchNorm, AGradientThatOthersReadStays) {
  Graph g = ir::parse(kStep + "} returns(%gx, %gw, %gb, %g)\n");
  EXPECT_TRUE(fuse_batch_norm(g));  // the forward half
  EXPECT_NE(ir::print(g).find("= batch_norm_bwd"), std::string::npos);
  EXPECT_NE(ir::print(g).find("relu_grad"), std::string::npos);
}

// Behind an addition the activation's input is no longer the normalised x.
TEST(FuseBatchNorm, NoSlopeAcrossAnAddition) {
  Graph g = ir::parse(kHead + kNorm + R"(  %s = add %y, %z
  %a = relu %s
  %g = relu_grad %a, %gy
  %gx, %gw, %gb = batch_norm_bwd %x, %g, %w, %m, %r
} returns(%gx, %gw, %gb)
)");
  EXPECT_TRUE(fuse_batch_norm(g));
  EXPECT_NE(ir::print(g).find("= batch_norm_bwd"), std::string::npos);
}

TEST(FuseBatchNorm, OtherDtypesStay) {
  std::string text = kHead + kNorm + "  %a = relu %y\n} returns(%a)\n";
  for (size_t at; (at = text.find("f32")) != std::string::npos;) text.replace(at, 3, "f64");
  expect_unchanged(fuse_batch_norm, text);
}

}  // namespace
}  // namespace mge::pass
