// vjp rules of the elementwise and reduce ops against central differences in float64, first and second order. A small
// tape over the reference kernels stands in for eager mode, so that a failure here is the rule's.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "kernel/run.h"
#include "op/elementwise/scalar_body.h"
#include "op/emitter.h"
#include "op/reduce/reduce.h"

namespace mge {
namespace {

struct Node : ValImpl {
  Meta meta;
  Buffer buffer;
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Val> in;
  double* data() const { return static_cast<double*>(buffer.data(DType::F64)); }
};
Node& node(const Val& v) { return *static_cast<Node*>(v.p.get()); }

class Tape : public Emitter {
 public:
  using Emitter::emit;
  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override {
    auto n = make_ref<Node>();
    std::vector<const Meta*> metas;
    std::vector<OpInput> inputs;
    for (auto& v : in) {
      metas.push_back(&node(v).meta);
      inputs.push_back({&node(v).meta, &node(v).buffer});
    }
    infer_op(op, attrs.get(), metas, {&n->meta, 1});
    run_op(op, attrs.get(), inputs, {&n->meta, 1}, {&n->buffer, 1}, {.ref_only = true});
    n->op = &op;
    n->attrs = attrs;
    n->in.assign(in.begin(), in.end());
    out[0] = wrap(n);
  }
  const Meta& meta(const Val& v) override { return node(v).meta; }
  Val constant(double value, DType dtype, const Val&) override {
    Val v = leaf({}, {value});
    if (dtype != DType::F64) ADD_FAILURE() << "constant of another dtype";
    return v;
  }
  Val leaf(const Shape& s, const std::vector<double>& values) {
    auto n = make_ref<Node>();
    n->meta.dtype = DType::F64;
    n->meta.shape = s;
    n->buffer = allocate_buffer(n->meta);
    std::copy(values.begin(), values.end(), n->data());
    return wrap(n);
  }
  Val apply(const OpDef& op, const Attrs& attrs, const std::vector<Val>& in) {
    Val y;
    emit(op, attrs, in, {&y, 1});
    return y;
  }
  /// d(sum of y*gy)/dx for each x, as values of this tape.
  std::vector<Val> backward(const Val& y, const Val& gy, const std::vector<Val>& xs) {
    std::vector<Val> order;
    std::map<ValImpl*, bool> seen;
    visit(y, seen, order);
    std::map<ValImpl*, Val> grad;
    grad[y.p.get()] = gy;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      Node& n = node(*it);
      auto found = grad.find(it->p.get());
      if (!n.op || found == grad.end() || !n.op->vjp) continue;
      std::vector<Meta> in_metas;
      uint64_t wanted = 0;
      for (size_t i = 0; i < n.in.size(); ++i) {
        in_metas.push_back(node(n.in[i]).meta);
        if (is_float(in_metas.back().dtype)) wanted |= 1u << i;
      }
      std::vector<Val> saved_in(n.in.size()), gxs(n.in.size());
      for (size_t i = 0; i < n.in.size(); ++i)
        if (n.op->saves.inputs >> i & 1) saved_in[i] = n.in[i];
      Val saved_out = n.op->saves.outputs & 1 ? *it : Val();
      VjpCtx c{this,         n.op, n.attrs.get(),       saved_in, {&saved_out, 1}, in_metas,
               {&n.meta, 1}, {},   {&found->second, 1}, gxs,      wanted};
      n.op->vjp(c);
      for (size_t i = 0; i < n.in.size(); ++i) {
        if (!gxs[i]) continue;
        EXPECT_EQ(gxs[i].shape(), n.in[i].shape()) << n.op->name;
        Val& g = grad[n.in[i].p.get()];
        g = g ? g + gxs[i] : gxs[i];
      }
    }
    std::vector<Val> out;
    for (auto& x : xs) out.push_back(grad.count(x.p.get()) ? grad[x.p.get()] : zeros_like(x));
    return out;
  }

 private:
  Val wrap(const RefPtr<Node>& n) { return Val{this, RefPtr<ValImpl>(n)}; }
  void visit(const Val& v, std::map<ValImpl*, bool>& seen, std::vector<Val>& order) {
    if (std::exchange(seen[v.p.get()], true)) return;
    for (auto& i : node(v).in) visit(i, seen, order);
    order.push_back(v);
  }
};

struct Problem {
  const OpDef& op;
  Attrs attrs;
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> x;  // inputs, all float64
  std::vector<Val> extra;              // a bool condition before them
};
std::vector<double> random_values(int64_t n, double lo, double hi) {
  static std::mt19937 g(11);
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::uniform_real_distribution<>(lo, hi)(g));
  return v;
}
// order 1: sum(w*y). order 2: sum over inputs of sum(w2 * gradient of order 1).
void check(Problem p, int order) {
  auto forward = [&](Tape& tape, std::vector<Val>& xs) {
    xs.clear();
    for (size_t i = 0; i < p.x.size(); ++i) xs.push_back(tape.leaf(p.shapes[i], p.x[i]));
    std::vector<Val> in = p.extra;
    in.insert(in.end(), xs.begin(), xs.end());
    return tape.apply(p.op, p.attrs, in);
  };
  std::vector<double> w, w2[2];
  for (int i = 0; i < 2; ++i)
    if (static_cast<size_t>(i) < p.x.size())
      w2[i] = random_values(static_cast<int64_t>(p.x[static_cast<size_t>(i)].size()), 0.5, 1.5);
  auto objective = [&](Tape& tape, std::vector<Val>& xs) {
    Val y = forward(tape, xs);
    if (w.empty()) w = random_values(y.shape().numel(), 0.5, 1.5);
    Val weights = tape.leaf(y.shape(), w);
    if (order == 1) return reduce(y * weights, "sum", {}, false);
    Val total;
    auto g = tape.backward(y, weights, xs);
    for (size_t i = 0; i < g.size(); ++i) {
      Val term = reduce(g[i] * tape.leaf(p.shapes[i], w2[i]), "sum", {}, false);
      total = total ? total + term : term;
    }
    return total;
  };
  Tape tape;
  std::vector<Val> xs;
  Val s = objective(tape, xs);
  auto analytic = tape.backward(s, tape.leaf({}, {1}), xs);
  for (size_t i = 0; i < p.x.size(); ++i)
    for (size_t k = 0; k < p.x[i].size(); ++k) {
      const double h = 1e-5, x0 = p.x[i][k];
      double f[2];
      for (int side = 0; side < 2; ++side) {
        p.x[i][k] = x0 + (side ? h : -h);
        Tape t;
        std::vector<Val> ignored;
        f[side] = *node(objective(t, ignored)).data();
      }
      p.x[i][k] = x0;
      double numeric = (f[1] - f[0]) / (2 * h), got = node(analytic[i]).data()[k];
      ASSERT_NEAR(got, numeric, 2e-6 * (1 + std::fabs(numeric)) * 10)
          << p.op.name << " order " << order << " input " << i << " at " << x0;
    }
}

struct Range {
  double lo, hi;
};
Range range_of(const std::string& op, size_t input) {
  static const std::map<std::string, Range> kRanges = {
      {"log", {0.3, 3}},       {"sqrt", {0.3, 3}},      {"rsqrt", {0.3, 3}},      {"log1p", {-0.5, 2}},
      {"asin", {-0.8, 0.8}},   {"acos", {-0.8, 0.8}},   {"atanh", {-0.8, 0.8}},   {"acosh", {1.3, 3}},
      {"erfinv", {-0.8, 0.8}}, {"erfcinv", {0.2, 1.8}}, {"tan", {-1, 1}},         {"pow", {0.4, 2}},
      {"div", {0.5, 2}},       {"mod", {1.1, 1.9}},     {"floor_div", {1.1, 1.9}}};
  auto it = kRanges.find(op);
  if (it == kRanges.end()) return {-2, 2};
  if (input == 1 && op == "mod") return {0.53, 0.54};
  return it->second;
}

TEST(ElementwiseGrad, EveryRuleMatchesDifferences) {
  OpRegistry& r = OpRegistry::global();
  int checked = 0;
  for (size_t id = 0; id < r.size(); ++id) {
    const OpDef& op = r.at(static_cast<OpId>(id));
    if (!op.scalar || op.scalar->selects) continue;
    bool differentiable = !op.is(kNoGrad);
    EXPECT_EQ(differentiable, op.vjp != nullptr) << op.name;
    if (!op.vjp) continue;
    for (int order : {1, 2}) {
      Problem p{op, nullptr, {}, {}, {}};
      const Shape shapes[] = {op.scalar->arity == 2 && op.promote != Promote::Same ? Shape{3, 1} : Shape{3, 2},
                              Shape{3, 2}};
      for (int k = 0; k < op.scalar->arity; ++k) {
        Range range = range_of(op.name, static_cast<size_t>(k));
        p.shapes.push_back(shapes[k]);
        p.x.push_back(random_values(shapes[k].numel(), range.lo, range.hi));
      }
      check(p, order);
    }
    ++checked;
  }
  EXPECT_GE(checked, 50);
}

TEST(ElementwiseGrad, WherePassesEachSideItsPart) {
  Tape tape;
  Val mask = binary("lt", tape.leaf({2, 1}, {0, 1}), tape.leaf({2}, {0.5, 2}));
  Problem p{OpRegistry::global().get("where"),
            nullptr,
            {{2, 2}, {2}},
            {random_values(4, -1, 1), random_values(2, -1, 1)},
            {mask}};
  check(p, 1);
  check(p, 2);
}

TEST(ElementwiseGrad, MaximumOfEqualsPassesTheGradientOnce) {
  Tape tape;
  Val x = tape.leaf({3}, {1, 2, 3});
  for (const char* op : {"maximum", "minimum"}) {
    Val g = tape.backward(binary(op, x, x), tape.leaf({3}, {1, 1, 1}), {x})[0];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(node(g).data()[i], 1);
  }
}

TEST(ElementwiseGrad, PowIsFiniteAtZero) {
  Tape tape;
  Val x = tape.leaf({2}, {0, -2}), y = tape.leaf({2}, {2, 2});
  auto g = tape.backward(binary("pow", x, y), tape.leaf({2}, {1, 1}), {x, y});
  EXPECT_EQ(node(g[0]).data()[0], 0);
  EXPECT_EQ(node(g[0]).data()[1], -4);
  EXPECT_EQ(node(g[1]).data()[0], 0);
}

TEST(ReduceGrad, EveryModeMatchesDifferences) {
  const std::pair<Shape, Ints> cases[] = {
      {{5}, {}}, {{2, 3}, {1}}, {{2, 3}, {0}}, {{2, 3, 2}, {0, 2}}, {{2, 1, 3}, {1}}};
  for (auto& [shape, axes] : cases)
    for (const char* mode : {"sum", "mean", "max", "min", "prod"})
      for (bool keepdims : {false, true})
        for (int order : {1, 2})
          check({OpRegistry::global().get("reduce"),
                 make_attrs(ReduceAttrs{mode, axes, keepdims}),
                 {shape},
                 {random_values(shape.numel(), 0.4, 2)},
                 {}},
                order);
}

TEST(ReduceGrad, TiesShareAndZerosOfAProductAreExact) {
  Tape tape;
  auto grad_of = [&](const char* mode, std::vector<double> v) {
    Val x = tape.leaf({static_cast<int64_t>(v.size())}, v);
    Val g = tape.backward(reduce(x, mode, {}, false), tape.leaf({}, {1}), {x})[0];
    return std::vector<double>(node(g).data(), node(g).data() + v.size());
  };
  EXPECT_EQ(grad_of("max", {1, 3, 3, 2}), (std::vector<double>{0, 0.5, 0.5, 0}));
  EXPECT_EQ(grad_of("min", {1, 3, 3, 1}), (std::vector<double>{0.5, 0, 0, 0.5}));
  EXPECT_EQ(grad_of("prod", {2, 0, 5}), (std::vector<double>{0, 10, 0}));
  EXPECT_EQ(grad_of("prod", {2, 0, 0}), (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace mge
