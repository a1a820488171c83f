// The pipeline must not change a bit: every graph runs unoptimised and at each level, and the outputs are compared byte
// by byte.
#include <cstring>

#include <gmock/gmock.h>

#include "ir/text.h"
#include "jit/interp/interp.h"
#include "op/elementwise/fused.h"
#include "op/reduce/reduce.h"
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

// What could not be folded, was merged, or reads what was rewritten: whatever fails says where it was written.
TEST(Optimize, RewrittenNodesNameTheLine) {
  for (const char* body : {
           "  %0 = take %t, %c        loc net.py:7\n",  // not folded
           "  %0 = take %x, %c        loc net.py:7\n  %1 = take %x, %c loc net.py:8\n  %2 = add %0, %1\n",  // merged
           "  %a = reshape %x {shape=[2,2]} loc net.py:5\n  %b = reshape %a {shape=[4]} loc net.py:6\n"
           "  %0 = take %b, %c loc net.py:7\n",  // of what went
       }) {
    ir::Graph g = ir::parse(
        "graph g(%x: f32[4]) {\n  const %t: f32[4] = 00000000000000000000000000000000\n  const %c: "
        "i32[1] = 09000000\n" +
        std::string(body) + "} returns(" + (std::strstr(body, "%2") ? "%2" : "%0") + ")\n");
    pass::optimize(g, options(2));
    try {
      run(g);
      FAIL() << ir::print(g);
    } catch (const Error& e) {
      EXPECT_THAT(e.text(), testing::HasSubstr("net.py:7")) << ir::print(g);
    }
  }
}

// Chains whose values are read outside, escape, are committed and reduced, over every kind of broadcast.
TEST(Optimize, RandomElementwiseGraphs) {
  uint32_t seed = 5;
  auto next = [&](uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; };
  const char* unary[] = {"neg", "abs", "relu", "sigmoid", "tanh", "square", "floor", "exp"};
  const char* binary[] = {"add", "sub", "mul", "maximum", "minimum"};
  const char* modes[] = {"sum", "mean", "max", "min", "prod"};
  size_t regions = 0, results = 0, reductions = 0;
  for (int round = 0; round < 200; ++round) {
    ir::Graph g("random");
    std::vector<ir::ValueId> v;
    const int64_t rows = 1 + next(70), wide = next(2) ? 33 : 128 + next(1200);
    for (Shape s : {Shape{rows, wide}, Shape{wide}, Shape{rows, 1}, Shape{}}) {
      Meta m;
      m.shape = s;
      v.push_back(g.add_input("x" + std::to_string(v.size()), m));
    }
    const ir::ValueId state = g.add_var("w", g.meta(v[0]));
    v.push_back(state);
    float half = 0.5f;
    v.push_back(g.add_constant_copy({}, &half));
    for (int i = 0; i < 25; ++i) {
      ir::ValueId a = v[next(static_cast<uint32_t>(v.size()))], b = v[next(static_cast<uint32_t>(v.size()))];
      switch (next(7)) {
        case 5:
          if (const int rank = g.meta(a).shape.rank; rank == 2) {
            ReduceAttrs at{modes[next(5)], {}, next(2) == 0};
            if (uint32_t axes = next(3)) at.axes = {axes - 1};
            ir::ValueId r = g.add1("reduce", make_attrs(at), {a});
            g.add_output("", r);
            if (at.keepdims) v.push_back(r);
          }
          break;
        case 6:  // a reader that cannot join
          if (g.meta(a).shape.rank == 2) g.add_output("", g.add1("softmax", nullptr, {a}));
          break;
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
    for (int i = 0; i < 4; ++i) g.add_output("", v[v.size() - 1 - next(8)]);
    for (size_t i = v.size(); i-- > 0;)
      if (g.meta(v[i]).same_type(g.meta(state))) {
        g.commit(0, v[i]);
        break;
      }
    ir::Graph h = same_bits_at_every_level(g);
    for (ir::NodeId n : h.order()) {
      if (h.node(n).op->name != "fused") continue;
      ++regions;
      results += h.node(n).outputs.size();
      reductions += attrs_as<FusedRegion>(h.node(n).attrs.get()).reduction() >= 0;
    }
    EXPECT_EQ(ir::print(ir::parse(ir::print(h))), ir::print(h));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(regions, 300u);
  EXPECT_GT(results, regions + 300);
  EXPECT_GT(reductions, 100u);
}

}  // namespace
}  // namespace mge
