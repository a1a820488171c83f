// vjp and decompose rules of the neural-network ops, in float64 on ref kernels: first and second order against
// differences of the function itself, and every decomposition against its kernel.
#ifndef MGE_LITE_ONLY  // which has no vjp rules
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "kernel/nn_arrays.h"
#include "kernel/run.h"
#include "op/conv/conv2d.h"
#include "op/emitter.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"
#include "op/matmul/matmul.h"
#include "op/nn.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"
#include "op/pool/pool.h"
#include "op/rng/rng.h"

namespace mge::testing_nn {
namespace {

struct TapeVal : ValImpl {
  Meta meta;
  Buffer buffer;
};

// Runs every op at once and remembers it.
class Tape final : public Emitter {
 public:
  struct Node {
    const OpDef* op;
    Attrs attrs;
    std::vector<Val> in, out;
  };
  std::vector<Node> nodes;
  bool whole = false;  // run ops that have a decomposition as they are

  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override {
    if (!whole && !op.vjp && op.decompose) return op.decompose(*this, attrs.get(), in, out);
    std::vector<const Meta*> metas;
    std::vector<OpInput> ins;
    for (auto& v : in) metas.push_back(&meta(v)), ins.push_back({&meta(v), &val(v).buffer});
    std::vector<Meta> outs(op.outputs.size());
    infer_op(op, attrs.get(), metas, outs);
    std::vector<Buffer> buffers(outs.size());
    run_op(op, attrs.get(), ins, outs, buffers, {.ref_only = true});
    for (size_t i = 0; i < outs.size(); ++i) out[i] = wrap(outs[i], buffers[i]);
    nodes.push_back({&op, attrs, {in.begin(), in.end()}, {out.begin(), out.end()}});
  }
  const Meta& meta(const Val& v) override { return val(v).meta; }
  Val constant(double value, DType dtype, const Val&) override { return make({{}, {value}, dtype != DType::I32}); }

  Val make(const Array& a) {
    Meta m;
    m.shape = a.shape;
    m.dtype = a.floating ? DType::F64 : DType::I32;
    Buffer b = allocate_buffer(m);
    for (int64_t i = 0; i < a.shape.numel(); ++i) store(make_arg(m, b), i, a.v[static_cast<size_t>(i)]);
    return wrap(m, b);
  }
  Array read(const Val& v) {
    Array a{meta(v).shape, {}, is_float(meta(v).dtype)};
    for (int64_t i = 0; i < a.shape.numel(); ++i) a.v.push_back(load(make_arg(meta(v), val(v).buffer), i));
    return a;
  }
  // Gradients of the scalar y; what they emit is recorded too. Empty where there is none.
  std::vector<Val> backward(const Val& y, const std::vector<Val>& wrt) {
    std::map<ValImpl*, Val> grads{{y.p.get(), make({{}, {1}, true})}};
    for (size_t n = nodes.size(); n-- > 0;) {
      Node node = nodes[n];
      std::vector<Val> gys, gxs(node.in.size());
      bool any = false;
      for (auto& o : node.out) {
        gys.push_back(grads.contains(o.p.get()) ? grads[o.p.get()] : Val{});
        any |= static_cast<bool>(gys.back());
      }
      if (!any) continue;
      EXPECT_TRUE(node.op->vjp) << node.op->name;
      std::vector<Meta> in_metas, out_metas;
      uint64_t wanted = 0;
      for (size_t i = 0; i < node.in.size(); ++i) {
        in_metas.push_back(meta(node.in[i]));
        if (is_float(in_metas.back().dtype)) wanted |= uint64_t{1} << i;
      }
      for (auto& o : node.out) out_metas.push_back(meta(o));
      std::vector<Val> in(node.in.size()), out(node.out.size());  // only what the rule asked to keep
      for (size_t i = 0; i < in.size(); ++i)
        if (node.op->saves.inputs >> i & 1) in[i] = node.in[i];
      for (size_t i = 0; i < out.size(); ++i)
        if (node.op->saves.outputs >> i & 1) out[i] = node.out[i];
      VjpCtx c{this, node.op, node.attrs.get(), in, out, in_metas, out_metas, {}, gys, gxs, wanted};
      node.op->vjp(c);
      for (size_t i = 0; i < gxs.size(); ++i) {
        if (!gxs[i]) continue;
        EXPECT_EQ(gxs[i].shape(), in_metas[i].shape) << node.op->name << " gradient of input " << i;
        Val& g = grads[node.in[i].p.get()];
        g = g ? g + gxs[i] : gxs[i];
      }
    }
    std::vector<Val> r;
    for (auto& v : wrt) r.push_back(grads.contains(v.p.get()) ? grads[v.p.get()] : Val{});
    return r;
  }

 private:
  static TapeVal& val(const Val& v) { return static_cast<TapeVal&>(*v.p); }
  Val wrap(const Meta& m, Buffer b) {
    auto* t = new TapeVal;
    t->meta = m;
    t->buffer = std::move(b);
    return {this, RefPtr<ValImpl>(t)};
  }
};

std::mt19937 gen(11);
Array uniform(const Shape& s, double lo = -1, double hi = 1) {
  std::uniform_real_distribution<double> d(lo, hi);
  Array a{s, {}, true};
  for (int64_t i = 0; i < s.numel(); ++i) a.v.push_back(d(gen));
  return a;
}
Array ints(const Shape& s, std::vector<double> v) { return {s, std::move(v), false}; }

Val total(const Val& x) { return reduce(x, "sum", {}, false); }

// A scalar function of arrays, built on a tape.
using Scalar = std::function<Val(Tape&, const std::vector<Val>&)>;

double value_of(const Scalar& f, const std::vector<Array>& in) {
  Tape t;
  std::vector<Val> v;
  for (auto& a : in) v.push_back(t.make(a));
  return t.read(f(t, v)).v[0];
}

// Directional differences of f against its gradient, along random directions in each floating input.
void check_gradient(const Scalar& f, const std::vector<Array>& in, const char* order) {
  Tape t;
  std::vector<Val> v;
  for (auto& a : in) v.push_back(t.make(a));
  std::vector<Val> g = t.backward(f(t, v), v);
  for (size_t k = 0; k < in.size(); ++k) {
    if (!in[k].floating || in[k].v.empty()) continue;
    Array along = uniform(in[k].shape),
          grad = g[k] ? t.read(g[k]) : Array{in[k].shape, std::vector<double>(in[k].v.size()), true};
    double slope = 0, size = 0, h = 1e-5;
    for (size_t i = 0; i < along.v.size(); ++i)
      slope += along.v[i] * grad.v[i], size += std::abs(along.v[i] * grad.v[i]);
    auto moved = [&](double step) {
      auto x = in;
      for (size_t i = 0; i < along.v.size(); ++i) x[k].v[i] += step * along.v[i];
      return value_of(f, x);
    };
    double want = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    EXPECT_NEAR(slope, want, 1e-7 * (1 + size)) << order << " order, input " << k;
  }
}

struct GradCase {
  std::string name;
  const char* op;
  Attrs attrs;
  std::vector<Array> in;
  uint32_t outputs = 1;  // bit i: output i takes part
};

std::vector<GradCase> make_cases() {
  std::vector<GradCase> c;
  auto mm = [](bool ta, bool tb) { return make_attrs(MatmulAttrs{ta, tb}); };
  c.push_back({"matmul", "matmul", mm(false, false), {uniform({3, 4}), uniform({4, 5})}});
  c.push_back({"matmul_ta", "matmul", mm(true, false), {uniform({4, 3}), uniform({4, 5})}});
  c.push_back({"matmul_tb", "matmul", mm(false, true), {uniform({3, 4}), uniform({5, 4})}});
  c.push_back({"matmul_tatb", "matmul", mm(true, true), {uniform({4, 3}), uniform({5, 4})}});
  c.push_back({"matmul_batch", "matmul", mm(false, false), {uniform({2, 1, 3, 4}), uniform({3, 4, 2})}});
  c.push_back({"matmul_linear", "matmul", mm(false, true), {uniform({2, 3, 4}), uniform({5, 4})}});
  c.push_back({"matmul_linear_nn", "matmul", mm(false, false), {uniform({2, 3, 4}), uniform({4, 5})}});

  Ints s{2, 1}, p{1, 2}, d{1, 2};
  Shape xs{2, 4, 5, 6}, ws{3, 4, 3, 2};
  ConvGeom g = conv_geom(Conv2dAttrs{s, p, d, 1}, xs, ws);
  Shape ys{g.n, g.o, g.oh, g.ow};
  c.push_back(
      {"conv2d", "conv2d", make_attrs(Conv2dAttrs{s, p, d, 1}), {uniform(xs), uniform(ws), uniform({1, 3, 1, 1})}});
  c.push_back(
      {"conv2d_dx", "conv2d_dx", make_attrs(Conv2dDxAttrs{{s, p, d, 1}, to_ints(xs)}), {uniform(ys), uniform(ws)}});
  c.push_back(
      {"conv2d_dw", "conv2d_dw", make_attrs(Conv2dDwAttrs{{s, p, d, 1}, to_ints(ws)}), {uniform(xs), uniform(ys)}});
  c.push_back(
      {"conv2d_groups", "conv2d", make_attrs(Conv2dAttrs{.groups = 2}), {uniform(xs), uniform({2, 3, 2, 3, 3})}});

  PoolAttrs pool{{3, 2}, {2, 1}, {1, 0}};
  c.push_back({"max_pool2d", "max_pool2d", make_attrs(pool), {uniform({2, 2, 5, 6})}});
  c.push_back(
      {"avg_pool2d", "avg_pool2d", make_attrs(AvgPoolAttrs{{3, 2}, {2, 1}, {1, 0}, false}), {uniform({2, 2, 5, 6})}});
  c.push_back({"avg_pool2d_include",
               "avg_pool2d",
               make_attrs(AvgPoolAttrs{{3, 2}, {}, {1, 0}, true}),
               {uniform({2, 2, 5, 6})}});

  Attrs eps = make_attrs(BatchNormAttrs{1e-2});
  c.push_back(
      {"batch_norm", "batch_norm_train", eps, {uniform({3, 2, 2, 3}), uniform({1, 2, 1, 1}), uniform({1, 2, 1, 1})}});
  c.push_back({"batch_norm_2d", "batch_norm_train", eps, {uniform({5, 3}), uniform({3}), uniform({3})}});
  c.push_back(
      {"batch_norm_stats", "batch_norm_train", eps, {uniform({3, 2, 2, 3}), uniform({2}), uniform({2})}, 0b1111});
  c.push_back(
      {"batch_norm_only_stats", "batch_norm_train", eps, {uniform({3, 2, 4}), uniform({2}), uniform({2})}, 0b0110});
  c.push_back({"batch_norm_infer",
               "batch_norm_infer",
               eps,
               {uniform({3, 2, 2, 3}), uniform({2}), uniform({1, 2, 1, 1}), uniform({2}), uniform({2}, 0.5, 1)}});
  c.push_back({"layer_norm",
               "layer_norm",
               make_attrs(LayerNormAttrs{2, 1e-2}),
               {uniform({3, 2, 4}), uniform({2, 4}), uniform({2, 4})},
               0b111});
  c.push_back({"layer_norm_plain", "layer_norm", make_attrs(LayerNormAttrs{1, 1e-2}), {uniform({3, 5})}});
  c.push_back({"layer_norm_all",
               "layer_norm",
               make_attrs(LayerNormAttrs{1, 1e-2}),
               {uniform({6}), uniform({6}), uniform({6})}});
  c.push_back({"softmax", "softmax", make_attrs(SoftmaxAttrs{1}), {uniform({3, 4, 2})}});
  c.push_back({"logsoftmax", "logsoftmax", make_attrs(SoftmaxAttrs{-1}), {uniform({3, 4})}});
  c.push_back({"xent", "softmax_xent", make_attrs(XentAttrs{1}), {uniform({3, 4}), ints({3}, {1, 0, 3})}});
  c.push_back({"xent_p", "softmax_xent", make_attrs(XentAttrs{0}), {uniform({3, 2}), ints({2}, {1, 0})}, 0b11});
  c.push_back({"one_hot", "indexing_one_hot", make_attrs(OneHotAttrs{1}), {uniform({3, 4}), ints({3}, {1, 0, 3})}});
  c.push_back({"set_one_hot",
               "set_one_hot",
               make_attrs(OneHotAttrs{1}),
               {uniform({3, 4}), ints({3}, {1, 0, 3}), uniform({3})}});
  c.push_back({"take", "take", make_attrs(TakeAttrs{1}), {uniform({2, 3, 2}), ints({4}, {1, -1, 0, 1})}});
  c.push_back({"dropout", "dropout", make_attrs(DropoutAttrs{0.4}), {uniform({4, 5}), ints({4}, {1, 2, 3, 4})}});
  return c;
}
const std::vector<GradCase>& cases() {
  static const auto* c = new std::vector<GradCase>(make_cases());
  return *c;
}

class NnGrad : public testing::TestWithParam<size_t> {};

// f(inputs, weights of each output) = sum of weight * output; the weights are inputs, so gradients flow through gy as
// well.
TEST_P(NnGrad, FirstAndSecondOrder) {
  const GradCase& c = cases()[GetParam()];
  const OpDef& op = OpRegistry::global().get(c.op);
  std::vector<Array> in = c.in;
  {
    Tape t;
    std::vector<Val> v, out(op.outputs.size());
    for (auto& a : in) v.push_back(t.make(a));
    t.emit(op, c.attrs, v, out);
    for (size_t o = 0; o < out.size(); ++o)
      if (c.outputs >> o & 1) in.push_back(uniform(out[o].shape()));
  }
  size_t n = c.in.size();
  Scalar first = [&, n](Tape& t, const std::vector<Val>& v) {
    std::vector<Val> out(op.outputs.size());
    t.emit(op, c.attrs, {v.data(), n}, out);
    Val sum;
    size_t w = n;
    for (size_t o = 0; o < out.size(); ++o)
      if (c.outputs >> o & 1) {
        Val term = total(out[o] * v[w++]);
        sum = sum ? sum + term : term;
      }
    return sum;
  };
  std::vector<Array> mix;
  for (auto& a : in) mix.push_back(uniform(a.shape));
  Scalar second = [&, n](Tape& t, const std::vector<Val>& v) {
    std::vector<Val> g = t.backward(first(t, v), {v.begin(), v.begin() + static_cast<int64_t>(n)});
    Val sum;
    for (size_t i = 0; i < n; ++i) {
      if (!g[i]) continue;
      Val term = total(g[i] * t.make(mix[i]));
      sum = sum ? sum + term : term;
    }
    return sum;
  };
  check_gradient(first, in, "first");
  check_gradient(second, in, "second");
}
INSTANTIATE_TEST_SUITE_P(All, NnGrad, testing::Range<size_t>(0, cases().size()),
                         [](const auto& i) { return cases()[i.param].name; });

TEST(NnDecompose, GivesTheValueOfTheKernel) {
  struct Row {
    const char* op;
    Attrs attrs;
    std::vector<Array> in;
  };
  Array stat = uniform({1, 3, 1, 1}, 0.5, 1), x = uniform({4, 3, 2, 5}), row = uniform({4, 6}),
        ln_stat = uniform({4, 1}, 0.5, 1);
  Attrs eps = make_attrs(BatchNormAttrs{1e-3}), axis = make_attrs(SoftmaxAttrs{1}),
        ln = make_attrs(LayerNormBwdAttrs{1});
  const Row rows[] = {
      {"batch_norm_train", eps, {x, stat, uniform({3})}},
      {"batch_norm_bwd", nullptr, {x, uniform({4, 3, 2, 5}), uniform({3}), stat, stat}},
      {"batch_norm_infer", eps, {x, stat, uniform({3}), uniform({3}), stat}},
      {"layer_norm", make_attrs(LayerNormAttrs{1, 1e-3}), {row, uniform({6}), uniform({6})}},
      {"layer_norm", make_attrs(LayerNormAttrs{2, 1e-3}), {row}},
      {"layer_norm_bwd", ln, {row, uniform({4, 6}), ln_stat, ln_stat, uniform({6})}},
      {"layer_norm_bwd", ln, {row, uniform({4, 6}), ln_stat, ln_stat}},
      {"softmax", axis, {x}},
      {"softmax_bwd", axis, {x, uniform({4, 3, 2, 5})}},
      {"logsoftmax", axis, {x}},
      {"logsoftmax_bwd", axis, {x, uniform({4, 3, 2, 5})}},
      {"softmax_xent_bwd", make_attrs(XentAttrs{1}), {row, ints({4}, {1, 0, 5, 2}), uniform({4})}},
  };
  size_t seen = 0;
  for (const Row& r : rows) {
    const OpDef& op = OpRegistry::global().get(r.op);
    ASSERT_TRUE(op.decompose) << r.op;
    Tape t;
    t.whole = true;
    std::vector<Val> v, a(op.outputs.size()), b(op.outputs.size());
    for (auto& arr : r.in) v.push_back(t.make(arr));
    t.emit(op, r.attrs, v, a);
    op.decompose(t, r.attrs.get(), v, b);
    for (size_t o = 0; o < a.size(); ++o) {
      Array want = t.read(a[o]), got = t.read(b[o]);
      ASSERT_EQ(got.shape, want.shape) << r.op << " output " << o;
      for (size_t i = 0; i < want.v.size(); ++i)
        ASSERT_NEAR(got.v[i], want.v[i], 1e-12 * (1 + std::abs(want.v[i]))) << r.op << " output " << o;
    }
    ++seen;
  }
  EXPECT_EQ(seen, std::size(rows));
}

}  // namespace
}  // namespace mge::testing_nn
#endif
