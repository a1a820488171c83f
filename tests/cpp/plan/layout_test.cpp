// Memory order in planned programs: chosen as in eager mode, kept from op to op, one copy for all who need another.
#include "plan/plan_test_util.h"
#include "plan/program.h"

namespace mge {
namespace {

// A channels-last kernel for every build: with or without oneDNN, batch norm follows its input.
const char* kNorms = R"(graph g(%x: f32[2,4,3,5], %w: f32[4], %b: f32[4]) {
  %0 = batch_norm_infer %x, %w, %b, %w, %w {eps=1e-05}
  %1 = relu %0
  %2 = batch_norm_infer %1, %w, %b, %w, %w {eps=1e-05}
  %3 = softmax %2 {axis=1}
  %4 = softmax %2 {axis=2}
} returns(%2, %3, %4))";

TEST(ProgramLayout, ChannelsLastIsKeptAndCopiedOnceForOthers) {
  ir::Graph g = ir::parse(kNorms);
  CompileOptions opt;
  const Shape s{2, 4, 3, 5};
  opt.input_layouts = {Layout::channels_last(s), Layout::contiguous(Shape{4}), Layout::contiguous(Shape{4})};
  opt.compare_oracle = true;
  auto p = Program::compile(g, opt), plain = Program::compile(g);
  EXPECT_EQ(p->report().copies, 1) << p->dump();  // both softmax read one row-major copy
  EXPECT_NE(p->dump().find("# channels-last to row-major for "), std::string::npos) << p->dump();
  EXPECT_EQ(plain->report().copies, 0) << plain->dump();
  EXPECT_GE(p->report().in_place, 1) << "relu works in place in either order\n" << p->dump();
  Buffer x = random_buffer(p->input_meta(0), 1), w = random_buffer(p->input_meta(1), 2),
         b = random_buffer(p->input_meta(2), 3);
  auto* scale = static_cast<float*>(w.data(DType::F32));
  for (int i = 0; i < 4; ++i) scale[i] = std::abs(scale[i]) + 0.5f;  // also the variance
  for (auto& q : {p, plain}) {
    q->bind_input(0, x);
    q->bind_input(1, w);
    q->bind_input(2, b);
    q->run();
  }
  EXPECT_TRUE(p->output(0).layout.is_channels_last(s));
  EXPECT_TRUE(plain->output(0).layout.is_contiguous(s));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(out(*p, i), out(*plain, i)) << "output " << i;
}

}  // namespace
}  // namespace mge
