// Memory order in planned programs: kept from op to op, one copy for all who need another, chosen for the whole graph.
#include "plan/describe.h"
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

// An operand in the other order is brought over once, not read across memory by everyone.
TEST(ProgramLayout, WhoIsReadOftenIsConvertedOnce) {
  ir::Graph g = ir::parse(R"(graph g(%x: f32[2,16,24,24], %r: f32[2,16,24,24]) {
  %0 = add %x, %r
  %1 = mul %0, %r
  %2 = sub %1, %r
} returns(%2))");
  const Shape s{2, 16, 24, 24};
  CompileOptions opt;
  opt.input_layouts = {Layout::channels_last(s), Layout::contiguous(s)};
  opt.compare_oracle = true;
  auto cost = Program::compile(g, opt);
  opt.orders = OrderTarget::Local;
  auto local = Program::compile(g, opt);
  EXPECT_EQ(local->report().copies, 0) << local->dump();
  EXPECT_EQ(cost->report().copies, 1) << cost->dump();
  EXPECT_EQ(cost->report().copy_bytes, static_cast<size_t>(s.numel()) * 4);
  EXPECT_GE(cost->report().reordered, 1);
  Buffer x = random_buffer(cost->input_meta(0), 1), r = random_buffer(cost->input_meta(1), 2);
  for (auto& q : {cost, local}) {
    q->bind_input(0, x);
    q->bind_input(1, r);
    q->run();
  }
  EXPECT_EQ(out(*cost, 0), out(*local, 0));
}

TEST(ProgramLayout, ConstantsAreConvertedWhenCompiled) {
  ir::Graph g("g");
  Meta m;
  m.shape = Shape{1, 16, 24, 24};
  const Buffer c = random_buffer(m, 3);
  const ir::ValueId x = g.add_input("x", m), k = g.add_constant_copy(m, c.storage->ptr);
  const ir::LocId loc = g.loc("net.py", 1);
  g.add_output("y", g.add1("mul", nullptr, {g.add1("add", nullptr, {x, k}, loc), k}, loc));
  CompileOptions opt;
  opt.input_layouts = {Layout::channels_last(m.shape)};
  opt.compare_oracle = true;
  auto p = Program::compile(g, opt);
  EXPECT_EQ(p->report().copies, 0) << p->dump();
  EXPECT_EQ(p->report().converted, 1) << p->dump();
  EXPECT_EQ(p->report().converted_bytes, m.bytes());
  EXPECT_THAT(p->report().str(), testing::HasSubstr("with 36864 of 1 in another order"));
  for (int again = 0; again < 2; ++again) {
    p->bind_input(0, random_buffer(m, 4));
    p->run();
    p->release_buffers();
  }
}

TEST(ProgramLayout, ChannelsLastCanBeAskedFor) {
  ir::Graph g = ir::parse(R"(graph g(%x: f32[1,8,9,9], %y: f32[1,8,5,5]) {
  %0 = max_pool2d %x {kernel=[3,3], stride=[2,2], pad=[1,1]}
  %1 = add %0, %y
  %2 = softmax %1 {axis=1}
} returns(%2))");
  CompileOptions opt;
  opt.compare_oracle = true;
  auto plain = Program::compile(g, opt);
  opt.orders = OrderTarget::ChannelsLast;
  auto last = Program::compile(g, opt);
  EXPECT_EQ(plain->report().channels_last, 0) << plain->dump();
  EXPECT_GE(last->report().channels_last, 1) << last->dump();
  EXPECT_GE(last->report().copies, 2) << last->dump();
  Buffer x = random_buffer(last->input_meta(0), 1), y = random_buffer(last->input_meta(1), 2);
  for (auto& q : {plain, last}) {
    q->bind_input(0, x);
    q->bind_input(1, y);
    q->run();
  }
  EXPECT_EQ(out(*plain, 0), out(*last, 0));
  const RefPtr<Program> all[] = {last};
  const std::string told = graph_exec_json(all);
  EXPECT_THAT(told, testing::HasSubstr(R"("order":"channels-last")"));
}

TEST(ProgramLayout, EnvironmentAsks) {
  ir::Graph g = ir::parse("graph g(%x: f32[1,8,9,9]) {\n  %0 = relu %x\n} returns(%0)");
  setenv("MGE_MEMORY_ORDER", "nhwc", 1);
  EXPECT_EQ(error_of([&] { Program::compile(g); }, ErrorKind::Value),
            "MGE_MEMORY_ORDER: expected cost, channels-last or local; got 'nhwc'.");
  unsetenv("MGE_MEMORY_ORDER");
  setenv("MGE_DUMP_IR", "after:assign_layouts", 1);
  testing::internal::CaptureStderr();
  Program::compile(g);
  unsetenv("MGE_DUMP_IR");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("# after assign_layouts\n"), testing::HasSubstr("relu %x"),
                             testing::HasSubstr("  # row-major\n")));
}

}  // namespace
}  // namespace mge
