#include "pass/pipeline.h"

#include <cstdlib>

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

TEST(Pipeline, LevelsListPasses) {
  EXPECT_TRUE(pass_names(0).empty());
  EXPECT_THAT(pass_names(1), testing::ElementsAre("dce", "constant_fold", "canonicalise", "arithmetic", "constant_fold",
                                                  "cse", "dce"));
  EXPECT_THAT(pass_names(2),
              testing::ElementsAre("dce", "write_out", "constant_fold", "canonicalise", "fuse_grain", "arithmetic",
                                   "constant_fold", "cse", "move_casts", "move_transposes", "fuse_batch_norm",
                                   "fuse_conv_epilogue", "fuse_matmul_epilogue", "fuse_elementwise", "dce"));
  EXPECT_THAT(inference_pass_names(),
              testing::ElementsAre("dce", "remove_dropout", "write_out", "constant_fold", "fuse_grain", "arithmetic",
                                   "fuse_preprocess", "half_io", "constant_fold", "cse", "dce"));
}

TEST(Pipeline, BadLevelIsTheCallersError) {
  Graph g;
  try {
    optimize(g, {.opt_level = 4});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.text(), "opt_level: expected 0 to 3; got 4.");
  }
}

TEST(Pipeline, ConvBnReluBecomesOneConvolution) {
  Graph g = ir::parse(
      R"(graph net(%x: f32[1,3,8,8]) vars(%w: f32[4,3,3,3], %g: f32[1,4,1,1], %b: f32[1,4,1,1], %m: f32[1,4,1,1], %v: f32[1,4,1,1]) {
  %0 = conv2d %x, %w                            loc net.py:1
  %1 = batch_norm_infer %0, %g, %b, %m, %v      loc net.py:2
  %y = relu %1                                  loc net.py:3
} returns(%y)
)");
  optimize(g, {});
  EXPECT_THAT(ir::print(g), testing::HasSubstr("%y = conv2d_fused %x, %w, %2, %4 {has_scale=true, act=\"relu\"}"));
}

TEST(Pipeline, DumpsAfterAPassOnRequest) {
  setenv("MGE_DUMP_IR", "after:cse", 1);
  testing::internal::CaptureStderr();
  Graph g = ir::parse("graph g(%x: f32[2]) {\n  %0 = neg %x\n} returns(%0)\n");
  optimize(g, {.opt_level = 1});
  unsetenv("MGE_DUMP_IR");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "# after cse\ngraph g(%x: f32[2]) {\n  %0 = neg %x : f32[2]\n} returns(%0)\n");
}

TEST(Pipeline, MisspeltDumpsAreErrors) {
  auto error = [](const char* value) -> std::string {
    setenv("MGE_DUMP_IR", value, 1);
    Graph g = ir::parse("graph g(%x: f32[2]) {\n  %0 = neg %x\n} returns(%0)\n");
    std::string text;
    try {
      optimize(g, {.opt_level = 1});
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      text = e.text();
    }
    unsetenv("MGE_DUMP_IR");
    return text;
  };
  EXPECT_THAT(error("after:cse,fuse"), testing::StartsWith("MGE_DUMP_IR: there is no pass 'fuse'. There are trace "));
  EXPECT_EQ(error("1"), "MGE_DUMP_IR: expected all or after:<pass>,<pass>...; got '1'.");
  EXPECT_EQ(error(""), "");
}

}  // namespace
}  // namespace mge::pass
