#include "plan/program.h"

#include <thread>

#include "plan/evaluate.h"
#include "plan/plan_test_util.h"
#include "plan/program_impl.h"

namespace mge {

struct ProgramTestPeer {
  static Program::Impl& impl(Program& p) { return *p.impl_; }
};

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RefPtr<Program> compile(const std::string& text, const CompileOptions& opt = {}) {
  return Program::compile(ir::parse(text), opt);
}

TEST(Program, RunsAndKeepsOutputsApart) {
  auto p = compile("graph g(%x: f32[3]) {\n  %0 = add %x, %x\n  %1 = neg %0\n} returns(%1, %0)");
  p->bind_input(0, floats({1, 2, 3}));
  p->run();
  Buffer first = p->output(0);
  EXPECT_THAT(out(*p, 0), ElementsAre(-2, -4, -6));
  EXPECT_THAT(out(*p, 1), ElementsAre(2, 4, 6));
  p->bind_input(0, floats({5, 5, 5}));
  p->run();
  EXPECT_THAT(out(*p, 0), ElementsAre(-10, -10, -10));
  EXPECT_THAT(read(p->output_meta(0), first), ElementsAre(-2, -4, -6));  // the caller's copy is untouched
}

TEST(Program, OutputsMayBeInputsConstantsAndViews) {
  auto p = compile(R"(graph g(%x: f32[2,3]) {
  const %c: f32[2] = 0000803f00000040
  %t = transpose %x {perm=[1,0]}
  %s = slice %x {axes=[1], starts=[1], stops=[3], steps=[1]}
} returns(%x, %c, %t, %s, again=%t))");
  EXPECT_EQ(p->n_instrs(), 0u);
  Meta m = p->input_meta(0);
  Buffer x = random_buffer(m, 1);
  p->bind_input(0, x);
  p->run();
  auto v = read(m, x);
  EXPECT_EQ(out(*p, 0), v);
  EXPECT_THAT(out(*p, 1), ElementsAre(1, 2));
  EXPECT_THAT(out(*p, 2), ElementsAre(v[0], v[3], v[1], v[4], v[2], v[5]));
  EXPECT_THAT(out(*p, 3), ElementsAre(v[1], v[2], v[4], v[5]));
  EXPECT_EQ(p->output(0).storage, x.storage);
  EXPECT_EQ(p->output(2).storage, x.storage);
}

TEST(Program, InputsWithOffsetsAndStrides) {
  auto p = compile("graph g(%x: f32[2,2]) {\n  %0 = add %x, %x\n  %t = reshape %x {shape=[4]}\n} returns(%0, %t)");
  Buffer b = floats({9, 1, 2, 3, 4, 9});
  b.layout = Layout::contiguous(Shape{2, 2});
  b.layout.offset = 1;
  p->bind_input(0, b);
  p->run();
  EXPECT_THAT(out(*p, 0), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(out(*p, 1), ElementsAre(1, 2, 3, 4));
  std::swap(b.layout.stride[0], b.layout.stride[1]);
  p->bind_input(0, b);
  p->run();
  EXPECT_THAT(out(*p, 0), ElementsAre(2, 6, 4, 8));

  CompileOptions opt;
  opt.input_layouts = {b.layout};  // expected strided: no copy
  p = compile("graph g(%x: f32[2,2]) {\n} returns(%x)", opt);
  p->bind_input(0, b);
  p->run();
  EXPECT_EQ(p->output(0).storage, b.storage);
  EXPECT_THAT(out(*p, 0), ElementsAre(1, 3, 2, 4));
  b.layout = Layout::contiguous(Shape{2, 2});
  p->bind_input(0, b);
  p->run();
  EXPECT_NE(p->output(0).storage, b.storage);
  EXPECT_THAT(out(*p, 0), ElementsAre(9, 1, 2, 3));
}

TEST(Program, AChainRunsInPlace) {
  std::string text = "graph g(%x: f32[1000]) {\n  %0 = neg %x\n";
  for (int i = 1; i < 20; ++i) text += format("  %{} = neg %{}\n", i, i - 1);
  auto p = compile(text + "  %20 = reduce %19 {axes=[0]}\n} returns(%20)");
  EXPECT_EQ(p->report().in_place, 19);
  EXPECT_LE(p->report().arena_bytes, 4096u + 64);
  CompileOptions off;
  off.in_place = false;
  auto q = compile(text + "} returns(%19)", off);
  EXPECT_EQ(q->report().in_place, 0);
  EXPECT_EQ(q->report().arena_bytes, q->report().lower_bound);
}

TEST(Program, PartsOfAConcatAreMadeInTheirPlaces) {
  const std::string text = R"(graph g(%x: f32[16,4]) {
  %a = neg %x
  %b = exp %x
  %c = concat %a, %b {axis=0}
  %d = tanh %x
  %e = concat %c, %d {axis=0}
  %y = reduce %e {mode="max", axes=[0]}
} returns(%y))";
  auto p = compile(text);
  EXPECT_EQ(p->report().parts, 4) << p->dump();
  EXPECT_EQ(p->report().arena_bytes, 3u * 256) << "nothing beside the result of the outer one";
  const Buffer x = random_buffer(p->input_meta(0), 3);
  CompileOptions apart;
  apart.in_place = false;
  auto q = compile(text, apart);
  EXPECT_EQ(q->report().parts, 0);
  for (auto* r : {&p, &q}) {
    (*r)->bind_input(0, x);
    (*r)->run();
  }
  EXPECT_EQ(out(*p, 0), out(*q, 0));
}

TEST(Program, PartsStayApartWhereTheyMust) {
  auto parts = [](const char* body) {
    return compile(std::string("graph g(%x: f32[16,4]) {\n  %a = neg %x\n  %b = exp %x\n") + body)->report().parts;
  };
  EXPECT_EQ(parts("%c = concat %a, %b {axis=1}\n} returns(%c)"), 0) << "rows of both lie in turn";
  EXPECT_EQ(parts("%c = concat %x, %b {axis=0}\n} returns(%c)"), 1) << "an input lies where the caller put it";
  EXPECT_EQ(parts("%c = concat %a, %b {axis=0}\n} returns(%c, %a)"), 1) << "results have memory of their own";
  EXPECT_EQ(parts("%c = concat %a, %a {axis=0}\n} returns(%c)"), 0) << "one value at two places";
  EXPECT_EQ(parts("%c = concat %a, %b {axis=0}\n  %d = mul %a, %b\n} returns(%c, %d)"), 0) << "read afterwards";
}

TEST(Program, NeverWritesOverAnInputOrAValueReadLater) {
  auto p = compile(R"(graph g(%x: f32[2,2]) {
  %0 = neg %x
  %1 = neg %0
  %2 = transpose %1 {perm=[1,0]}
  %3 = add %1, %2
  %4 = mul %3, %0
} returns(%4))");
  p->bind_input(0, [] {
    Buffer b = floats({1, 2, 3, 4});
    b.layout = Layout::contiguous(Shape{2, 2});
    return b;
  }());
  p->run();
  EXPECT_THAT(out(*p, 0), ElementsAre(-2, -10, -15, -32));
}

const char kSgd[] = R"(graph step(%g: f32[3]) vars(%w: f32[3], %lr: f32[]) {
  %0 = mul %g, %lr        loc train.py:10
  %w1 = sub %w, %0        loc train.py:11
  %loss = reduce %g {axes=[0]}
} returns(%loss) commits(%w <- %w1))";

TEST(Program, VarsAreUpdatedInPlaceOnlyWhenGivenAway) {
  auto p = compile(kSgd);
  EXPECT_EQ(p->report().donated_vars, 1);
  Buffer w = floats({1, 2, 3}), lr = floats({0.5f});
  lr.layout = Layout::contiguous(Shape{});
  void* memory = w.storage->ptr;
  p->bind_input(0, floats({2, 2, 2}));
  p->bind_var(0, w);  // still ours
  p->bind_var(1, lr);
  p->run();
  EXPECT_THAT(read(p->var_meta(0), w), ElementsAre(1, 2, 3));
  EXPECT_THAT(var(*p, 0), ElementsAre(0, 1, 2));
  EXPECT_NE(p->var(0).storage->ptr, memory);

  p->release_buffers();
  p->bind_input(0, floats({2, 2, 2}));
  p->bind_var(0, std::move(w));  // given away
  p->bind_var(1, lr);
  p->run();
  EXPECT_EQ(p->var(0).storage->ptr, memory);
  EXPECT_THAT(var(*p, 0), ElementsAre(0, 1, 2));
  Buffer back = p->var(0);
  p->release_buffers();
  EXPECT_EQ(back.storage->ref_count(), 1u);
}

TEST(Program, AVarReadAfterItsUpdateIsNotDonated) {
  auto p = compile("graph g() vars(%w: f32[2]) {\n  %0 = neg %w\n  %1 = exp %w\n} returns(%1) commits(%w <- %0)");
  EXPECT_EQ(p->report().donated_vars, 0);
  p = compile("graph g() vars(%w: f32[2]) {\n  %0 = neg %w\n} returns(%w) commits(%w <- %0)");
  EXPECT_EQ(p->report().donated_vars, 0);
  p = compile("graph g() vars(%w: f32[2], %v: f32[2]) {\n  %0 = neg %w\n} returns() commits(%w <- %0, %v <- %0)");
  EXPECT_EQ(p->report().donated_vars, 0);
}

TEST(Program, CommitsMaySwapVars) {
  auto p = compile("graph g() vars(%a: f32[1], %b: f32[1]) {\n} returns() commits(%a <- %b, %b <- %a)");
  p->bind_var(0, floats({1}));
  p->bind_var(1, floats({2}));
  p->run();
  EXPECT_THAT(var(*p, 0), ElementsAre(2));
  EXPECT_THAT(var(*p, 1), ElementsAre(1));
}

TEST(Program, ErrorsNameOpAndLocation) {
  auto p = compile(R"(graph g(%x: f32[1,3], %t: i32[1]) vars(%w: f32[1]) {
  %w1 = neg %w                        loc train.py:7
  %l, %p = softmax_xent %x, %t        loc train.py:8 in loss
  %w2 = neg %w1                       loc train.py:9
} returns(%l) commits(%w <- %w2))");
  Buffer t = random_buffer(p->input_meta(1), 0);
  *static_cast<int32_t*>(t.storage->ptr) = 99;
  p->bind_input(0, random_buffer(p->input_meta(0), 1));
  p->bind_input(1, t);
  p->bind_var(0, floats({4}));
  std::string e = error_of([&] { p->run(); }, ErrorKind::Index);
  EXPECT_THAT(e, HasSubstr("softmax_xent"));
  EXPECT_THAT(e, HasSubstr("99"));
  EXPECT_THAT(e, HasSubstr("\n  at train.py:8 in loss"));
  EXPECT_THAT(var(*p, 0), ElementsAre(4));  // the commit has not happened
  *static_cast<int32_t*>(t.storage->ptr) = 1;
  p->run();  // and the program is still good
  EXPECT_THAT(var(*p, 0), ElementsAre(4));
}

TEST(Program, UnboundNamesAreNamed) {
  auto p = compile(kSgd);
  EXPECT_THAT(error_of([&] { p->run(); }, ErrorKind::Value), HasSubstr("var 'w' is not bound"));
  p->bind_var(0, floats({1, 2, 3}));
  p->bind_var(1, floats({1}));
  EXPECT_THAT(error_of([&] { p->run(); }, ErrorKind::Value), HasSubstr("input 'g' is not bound"));
}

TEST(Program, ConstantsWithoutDataAreRefused) {
  EXPECT_THAT(error_of([&] { compile("graph g() {\n  const %c: f32[2]\n} returns(%c)"); }, ErrorKind::Value),
              HasSubstr("has no data"));
}

TEST(Program, PiecewiseFeedingAndReading) {
  auto p = compile(R"(graph g(%x: f32[2], %y: f32[2]) {
  %0 = exp %x
  %a = sub %0, %0
  %1 = add %a, %y
  %b = neg %1
} returns(%a, %b))");
  EXPECT_EQ(p->input_needed_at(0), 0u);
  EXPECT_EQ(p->input_needed_at(1), 2u);
  EXPECT_EQ(p->output_ready_at(0), 2u);
  EXPECT_EQ(p->output_ready_at(1), 4u);
  p->bind_input(0, floats({1, 2}));
  p->begin();
  p->run_until(2);
  EXPECT_THAT(out(*p, 0), ElementsAre(0, 0));
  p->bind_input(1, floats({7, 8}));
  p->run_until(4);
  p->finish();
  EXPECT_THAT(out(*p, 1), ElementsAre(-7, -8));
}

TEST(Program, SecondRunnerIsRefused) {
  auto p = compile("graph g(%x: f32[2]) {\n  %0 = neg %x\n} returns(%0)");
  p->bind_input(0, floats({1, 2}));
  p->begin();
  std::string text;
  std::thread([&] { text = error_of([&] { p->run(); }, ErrorKind::Assertion); }).join();
  EXPECT_THAT(text, HasSubstr("is running already"));
  p->run_until(1);
  p->finish();
  EXPECT_THAT(out(*p, 0), ElementsAre(-1, -2));
}

TEST(Program, ZeroSizesAndScalars) {
  auto p = compile(
      "graph g(%x: f32[0,3], %s: f32[]) {\n  %0 = add %x, %s\n  %1 = reduce %0 {axes=[0]}\n  %2 = neg %s\n} "
      "returns(%0, %1, %2)");
  p->bind_input(0, random_buffer(p->input_meta(0), 1));
  Buffer s = floats({3});
  s.layout = Layout::contiguous(Shape{});
  p->bind_input(1, s);
  p->run();
  EXPECT_TRUE(out(*p, 0).empty());
  EXPECT_THAT(out(*p, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(out(*p, 2), ElementsAre(-3));
}

TEST(Program, EvaluatorRunsKernelsOnConstants) {
  ir::Graph g = ir::parse("graph g() {\n  const %c: f32[2] = 0000803f00000040\n} returns(%c)");
  const ir::Constant& c = g.constants()[0];
  ir::ConstTensor in{g.meta(c.value), c.storage, c.offset}, result{g.meta(c.value), nullptr, 0};
  kernel_evaluator()(OpRegistry::global().get("neg"), nullptr, {&in, 1}, {&result, 1});
  EXPECT_EQ(static_cast<float*>(result.storage->ptr)[1], -2);
}

TEST(CheckedProgram, FindsNan) {
  auto p = compile("graph g(%x: f32[2]) {\n  %0 = log %x   loc a.py:5\n  %1 = exp %0\n} returns(%1)", [] {
    CompileOptions o;
    o.check_nan = true;
    return o;
  }());
  p->bind_input(0, floats({1, 2}));
  p->run();
  p->bind_input(0, floats({1, -2}));
  std::string e = error_of([&] { p->run(); }, ErrorKind::Value);
  EXPECT_THAT(e, HasSubstr("log: result 0 is"));
  EXPECT_THAT(e, HasSubstr("at element 1"));
  EXPECT_THAT(e, HasSubstr("at a.py:5"));
}

TEST(CheckedProgram, CanarySeesAnOverrun) {
  CompileOptions o;
  o.poison = true;
  auto p = compile("graph g(%x: f32[2]) {\n  %0 = neg %x   loc a.py:5\n  %1 = exp %0\n} returns(%1)", o);
  p->bind_input(0, floats({1, 2}));
  p->run();
  auto& impl = ProgramTestPeer::impl(*p);
  Kernel wild = *impl.code[0].kernel;
  wild.name = "wild";
  wild.run = [](const KernelArgs& a) { std::memset(a.out[0].ptr, 0, 12); };
  impl.code[0].kernel = &wild;
  p->bind_input(0, floats({1, 2}));
  std::string e = error_of([&] { p->run(); }, ErrorKind::Internal);
  EXPECT_THAT(e, HasSubstr("kernel wild wrote past the end of a buffer of 8 bytes"));
  EXPECT_THAT(e, HasSubstr("at a.py:5"));
}

TEST(CheckedProgram, OracleSeesAWrongKernel) {
  CompileOptions o;
  o.compare_oracle = true;
  auto p = compile(
      "graph g(%x: f32[2]) vars(%w: f32[2]) {\n  %0 = add %x, %w   loc a.py:5\n} returns(y=%0) commits(%w <- %0)", o);
  auto bind = [&] {
    p->bind_input(0, floats({1, 2}));
    p->bind_var(0, floats({3, 4}));
  };
  bind();
  p->run();
  auto& impl = ProgramTestPeer::impl(*p);
  Kernel wrong = *impl.code[0].kernel;
  wrong.run = [](const KernelArgs& a) {
    static_cast<float*>(a.out[0].ptr)[0] = static_cast<float*>(a.out[0].ptr)[1] = 6;
  };
  impl.code[0].kernel = &wrong;
  bind();
  std::string e = error_of([&] { p->run(); }, ErrorKind::Assertion);
  EXPECT_THAT(e, HasSubstr("'y' differs from the reference interpreter at element 0 of float32[2]: 6 instead of 4"));
  EXPECT_THAT(e, HasSubstr("at a.py:5"));
}

// The verifier must notice every way a plan can be wrong, so each is made wrong by hand.
struct VerifyProgram : testing::Test {
  RefPtr<Program> p = compile(R"(graph g(%x: f32[64]) vars(%w: f32[64]) {
  %0 = exp %x
  %1 = exp %w
  %2 = add %0, %1
  %3 = mul %2, %0
  %4 = sub %3, %1
} returns(%4) commits(%w <- %2))",
                              [] {
                                CompileOptions o;
                                o.in_place = false;
                                return o;
                              }());
  Program::Impl& impl = ProgramTestPeer::impl(*p);
  std::string error() {
    return error_of([&] { verify_program(*p); }, ErrorKind::Internal);
  }
  int buffer_of(const char*, size_t instr) {
    return impl.refs[impl.code[instr].first_arg + impl.code[instr].n_in].buffer;
  }
};

TEST_F(VerifyProgram, AcceptsTheCompiledPlan) { verify_program(*p); }
TEST_F(VerifyProgram, TwoLiveBuffersAtOnePlace) {
  impl.buffers[buffer_of("%1", 1)].offset = impl.buffers[buffer_of("%0", 0)].offset;
  EXPECT_THAT(error(), HasSubstr("instruction 2 (add) reads operand 0"));
}
TEST_F(VerifyProgram, PartialOverlap) {
  impl.buffers[buffer_of("%1", 1)].offset = impl.buffers[buffer_of("%0", 0)].offset + 192;
  EXPECT_THAT(error(), testing::AnyOf(HasSubstr("holds something else"), HasSubstr("leaves the arena")));
}
TEST_F(VerifyProgram, WrongOperand) {
  impl.refs[impl.code[3].first_arg].buffer = buffer_of("%1", 1);
  EXPECT_THAT(error(), HasSubstr("instruction 3 (mul) reads operand 0"));
}
TEST_F(VerifyProgram, ResultOverAnOperandAKernelDoesNotAllow) {
  Kernel strict = *impl.code[2].kernel;
  strict.flags = 0;
  impl.code[2].kernel = &strict;
  int y = impl.place[impl.graph.node(impl.code[2].node).outputs[0]].buffer;
  impl.buffers[y].donor = 0;       // claims w's memory, which this add does not even read
  EXPECT_EQ(error(), "no error");  // w is dead by then: sound
  impl.buffers[y].donor = -1;
  impl.refs[impl.code[2].first_arg + 2].buffer = buffer_of("%0", 0);
  EXPECT_THAT(error(), HasSubstr("writes result 0 over operand 0"));
}
TEST_F(VerifyProgram, OutputLeftInTheArena) {
  impl.buffers[buffer_of("%4", 4)].where = Where::Arena;
  EXPECT_THAT(error(),
              testing::AnyOf(HasSubstr("lies in the arena"), HasSubstr("leaves the arena"), HasSubstr("over operand")));
}
TEST_F(VerifyProgram, InstructionsOutOfOrder) {
  std::swap(impl.code[0], impl.code[1]);
  EXPECT_THAT(error(), testing::AnyOf(HasSubstr("has no instruction"), HasSubstr("out of order")));
}

}  // namespace
}  // namespace mge
