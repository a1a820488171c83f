// The pipeline must not change a bit: every graph runs unoptimised and at each level, and the outputs are compared byte
// by byte.
#include <cstring>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "jit/interp/interp.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"
#include "plan/program.h"

namespace mge {
namespace {

pass::PipelineOptions options(int level) {
  return {.opt_level = level, .evaluate = kernel_evaluator(), .can_fuse = interp_can_fuse};
}

Buffer random_buffer(const Meta& m, uint32_t seed) {
  Buffer b = allocate_buffer(m);
  for (int64_t i = 0; i < m.shape.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    if (m.dtype == DType::F32)
      static_cast<float*>(b.storage->ptr)[i] = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 0.9f;
    else
      static_cast<int32_t*>(b.storage->ptr)[i] = static_cast<int32_t>(seed >> 29);
  }
  return b;
}

std::vector<std::string> run(const ir::Graph& g) {
  auto p = Program::compile(g);
  for (size_t i = 0; i < p->n_inputs(); ++i)
    p->bind_input(i, random_buffer(p->input_meta(i), static_cast<uint32_t>(i) + 1));
  for (size_t i = 0; i < p->n_vars(); ++i)
    p->bind_var(i, random_buffer(p->var_meta(i), static_cast<uint32_t>(i) + 100));
  p->run();
  std::vector<std::string> bytes;
  auto add = [&](const Meta& m, const Buffer& b) {
    Buffer c = make_contiguous(m, b);
    bytes.emplace_back(static_cast<const char*>(c.data(m.dtype)), m.bytes());
  };
  for (size_t i = 0; i < p->n_outputs(); ++i) add(p->output_meta(i), p->output(i));
  for (size_t i = 0; i < p->n_vars(); ++i) add(p->var_meta(i), p->var(i));
  return bytes;
}

/// Runs at levels 0..3 and returns the level-2 graph.
ir::Graph same_bits_at_every_level(const ir::Graph& g) {
  install_interp();
  auto want = run(g);
  ir::Graph at2;
  for (int level = 0; level <= 3; ++level) {
    ir::Graph h = g.clone();
    pass::optimize(h, options(level));
    auto got = run(h);
    EXPECT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(got[i] == want[i]) << "result " << i << " differs at level " << level << "\n"
                                     << ir::print(h, {.types = true});
    if (level == 2) at2 = std::move(h);
  }
  return at2;
}

std::string block(const std::string& extra) {
  return R"(graph net(%x: f32[2,8,9,9], %r: f32[2,12,9,9]) vars(%w: f32[12,8,3,3], %b: f32[1,12,1,1], %g: f32[1,12,1,1], %h: f32[1,12,1,1], %m: f32[1,12,1,1], %v: f32[1,12,1,1]) {
  %p = square %v
)" + extra;
}

TEST(Optimize, ResidualBlock) {
  ir::Graph g = ir::parse(block(R"(  %0 = conv2d %x, %w, %b {pad=[1,1]}
  %1 = batch_norm_infer %0, %g, %h, %m, %p
  %2 = add %1, %r
  %3 = relu %2
  %4 = conv2d %x, %w {pad=[1,1]}
  %5 = relu %4
  %6 = sub %3, %5
} returns(%6))"));
  ir::Graph h = same_bits_at_every_level(g);
  EXPECT_THAT(ir::print(h), testing::HasSubstr("has_bias=true, has_scale=true, has_add=true, act=\"relu\""));
}

TEST(Optimize, ConstantBatchNormLeavesOneNode) {
  ir::Graph g("net");
  auto meta = [](Shape s) {
    Meta m;
    m.shape = s;
    return m;
  };
  auto constant = [&](Shape s, uint32_t seed, bool positive) {
    Buffer b = random_buffer(meta(s), seed);
    if (positive)
      for (int64_t i = 0; i < s.numel(); ++i) static_cast<float*>(b.storage->ptr)[i] += 1.5f;
    return g.add_constant(meta(s), b.storage);
  };
  ir::ValueId x = g.add_input("x", meta({2, 8, 9, 9}));
  ir::ValueId y = g.add1("conv2d", nullptr, {x, constant({12, 8, 3, 3}, 1, false)});
  Shape c{1, 12, 1, 1};
  y = g.add1("batch_norm_infer", nullptr,
             {y, constant(c, 2, false), constant(c, 3, false), constant(c, 4, false), constant(c, 5, true)});
  g.add_output("y", g.add1("relu", nullptr, {y}));
  ir::Graph h = same_bits_at_every_level(g);
  EXPECT_EQ(h.n_nodes(), 1u) << ir::print(h);
}

TEST(Optimize, ElementwiseTailOfATrainingStep) {
  ir::Graph g = ir::parse(R"(graph step(%x: f32[32,100], %t: i32[32], %lr: f32[]) vars(%w: f32[10,100], %b: f32[10]) {
  %y = matmul %x, %w {tb=true}
  %z = add %y, %b
  %s = sigmoid %z
  %u = mul %s, %z
  %l, %p = softmax_xent %u, %t
  %loss = reduce %l {mode="mean", axes=[0]}
  %one = fill_like %l {value=0.03125}
  %gu = softmax_xent_bwd %p, %t, %one
  %gz = silu_grad %z, %gu
  %gw = matmul %gz, %x {ta=true}
  %gb = reduce %gz {axes=[0]}
  %dw = mul %gw, %lr
  %w1 = sub %w, %dw
  %db = mul %gb, %lr
  %b1 = sub %b, %db
} returns(%loss) commits(%w <- %w1, %b <- %b1))");
  ir::Graph h = same_bits_at_every_level(g);
  EXPECT_LT(h.n_nodes(), g.n_nodes());
}

TEST(Optimize, RandomElementwiseGraphs) {
  uint32_t seed = 5;
  auto next = [&](uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; };
  const char* unary[] = {"neg", "abs", "relu", "sigmoid", "tanh", "square", "floor", "exp"};
  const char* binary[] = {"add", "sub", "mul", "maximum", "minimum"};
  for (int round = 0; round < 60; ++round) {
    ir::Graph g("random");
    std::vector<ir::ValueId> v;
    for (Shape s : {Shape{7, 33}, Shape{33}, Shape{7, 1}, Shape{}}) {
      Meta m;
      m.shape = s;
      v.push_back(g.add_input("x" + std::to_string(v.size()), m));
    }
    float half = 0.5f;
    v.push_back(g.add_constant_copy({}, &half));
    for (int i = 0; i < 25; ++i) {
      ir::ValueId a = v[next(static_cast<uint32_t>(v.size()))], b = v[next(static_cast<uint32_t>(v.size()))];
      switch (next(5)) {
        case 0:
          v.push_back(g.add1(unary[next(7)], nullptr, {a}));
          break;
        case 1:
          v.push_back(g.add1("where", nullptr, {g.add1("lt", nullptr, {a, b}), a, b}));
          break;
        default:
          v.push_back(g.add1(binary[next(5)], nullptr, {a, b}));
      }
    }
    g.add_output("a", v.back());
    g.add_output("b", v[v.size() - 4]);
    same_bits_at_every_level(g);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace mge
