// What a camera gives, and what a network wants, in one op: the same bits as the steps one by one, for any sizes.
#include "pass/fuse_preprocess.h"

#include <cstring>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "plan/evaluate.h"
#include "plan/program.h"

namespace mge {
namespace {

std::string run(const ir::Graph& g) {
  auto p = Program::compile(g);
  Buffer x = allocate_buffer(p->input_meta(0));
  for (size_t i = 0; i < p->input_meta(0).bytes(); ++i)
    static_cast<uint8_t*>(x.storage->ptr)[i] = static_cast<uint8_t>(i * 37 + i / 251);
  p->bind_input(0, x);
  p->run();
  Buffer y = make_contiguous(p->output_meta(0), p->output(0));
  return {static_cast<const char*>(y.data(p->output_meta(0).dtype)), p->output_meta(0).bytes()};
}

constexpr const char* kMean = "  const %m: f32[1,1,1,3] = 1ff5f742ae47e9420ad7cf42\n";
constexpr const char* kMean1 = "  const %m: f32[1,3,1,1] = 1ff5f742ae47e9420ad7cf42\n";
constexpr const char* kStd = "  const %s: f32[] = 66666542\n";

void fuses(const std::string& shape, const std::string& body, const std::string& attrs) {
  ir::Graph g = ir::parse("graph g(%x: u8" + shape + ") {\n" + body + "} returns(%y)\n"), h = g.clone();
  EXPECT_TRUE(pass::fuse_preprocess(h, kernel_evaluator())) << body;
  ir::verify(h);
  EXPECT_EQ(h.n_nodes(), 1u) << ir::print(h);
  EXPECT_THAT(ir::print(h, {.max_const_bytes = 0}), testing::HasSubstr("byte_table %x, %c0" + attrs)) << body;
  EXPECT_TRUE(run(g) == run(h)) << ir::print(h);
}

TEST(FusePreprocess, StepsBecomeATable) {
  const std::string cast = "  %0 = typecvt %x loc a.py:1\n", norm = "  %1 = sub %0, %m\n  %2 = div %1, %s\n";
  fuses("[2,5,7,3]", kMean + std::string(kStd) + cast + norm + "  %y = transpose %2 {perm=[0,3,1,2]}\n",
        " {to_nchw=true}");
  fuses("[2,5,7,3]",
        kMean1 + std::string(kStd) + "  %a = transpose %x {perm=[0,3,1,2]}\n  %0 = typecvt %a loc a.py:1\n" +
            "  %1 = sub %0, %m\n  %y = div %1, %s\n",
        " {to_nchw=true}");
  fuses("[2,5,7,3]", kMean + std::string(kStd) + cast + "  %1 = sub %0, %m\n  %y = div %1, %s\n", " {axis=3}");
  fuses("[2,3,5,7]", kMean1 + std::string(kStd) + cast + "  %1 = sub %0, %m\n  %y = div %1, %s\n", " {axis=1}");
  fuses("[40]", kStd + cast + "  %1 = div %0, %s\n  %y = typecvt %1 {dtype=float16}\n", "");
  fuses("[2,5,7,4]", kStd + cast + "  %1 = div %0, %s\n  %y = transpose %1 {perm=[0,3,1,2]}\n", " {to_nchw=true}");
}

TEST(FusePreprocess, WhatIsNoPreprocessingStays) {
  auto stays = [](const std::string& shape, const std::string& body) {
    ir::Graph g = ir::parse("graph g(%x: u8" + shape + ", %z: f32[3]) {\n" + body + "} returns(%y)\n");
    EXPECT_FALSE(pass::fuse_preprocess(g, kernel_evaluator())) << ir::print(g);
  };
  stays("[2,3]", "  %y = typecvt %x\n");                     // a cast alone is one op
  stays("[2,3]", "  %0 = typecvt %x\n  %y = add %0, %z\n");  // not a constant
  stays("[2,3]", "  %0 = typecvt %x\n  %y = softmax %0\n");  // looks at its neighbours
  stays("[2,2,2,2]", std::string("  const %m: f32[2,1,1,1] = 0000803f0000803f\n") +
                         "  %0 = typecvt %x\n  %y = sub %0, %m\n");  // by image, not by channel
}

// The batch and the size of images are free; channels are what the constants say.
TEST(FusePreprocess, HoldsForOtherSizes) {
  ir::Graph g =
      ir::parse("graph g(%x: u8[1,2,2,3]) {\n" + std::string(kMean) +
                "  %0 = typecvt %x\n  %1 = sub %0, %m\n  %y = transpose %1 {perm=[0,3,1,2]}\n} returns(%y)\n");
  ir::Graph h = g.clone();
  EXPECT_TRUE(pass::fuse_preprocess(h, kernel_evaluator()));
  for (ir::Graph* at : {&g, &h}) {
    Meta m = at->meta(at->inputs()[0]);
    m.shape = Shape{3, 9, 4, 3};
    at->set_input_meta(0, m);
    at->infer_all();
  }
  EXPECT_TRUE(run(g) == run(h));
}

}  // namespace
}  // namespace mge
