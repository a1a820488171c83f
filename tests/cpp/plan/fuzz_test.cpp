// Random graphs: the program must agree with the oracle, with in-place reuse on and off, under poison and canaries,
// twice in a row.
#include <cmath>

#include "plan/plan_test_util.h"

namespace mge {
namespace {

struct Fuzzer {
  uint32_t seed;
  ir::Graph g{"fuzz"};
  std::vector<ir::ValueId> values = {};

  uint32_t next(uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; }
  ir::ValueId pick() {
    return values[values.size() - 1 - next(std::min<uint32_t>(static_cast<uint32_t>(values.size()), 12))];
  }
  const Shape& shape(ir::ValueId v) { return g.meta(v).shape; }

  ir::ValueId add(const char* op, std::initializer_list<ir::ValueId> in, std::vector<NamedAttr> attrs = {}) {
    const OpDef& d = OpRegistry::global().get(op);
    ir::LocId loc = g.loc("fuzz.py", static_cast<int>(g.n_nodes()));
    return g.add1(op, d.has_attrs ? d.schema.build(op, attrs) : nullptr, in, loc);
  }
  /// Another value whose shape broadcasts with v's without changing it.
  ir::ValueId partner(ir::ValueId v) {
    for (int tries = 0; tries < 8; ++tries) {
      ir::ValueId w = pick();
      const Shape &a = shape(v), &b = shape(w);
      bool fits = b.rank <= a.rank;
      for (int i = 0; fits && i < b.rank; ++i) fits = b[i] == a[a.rank - b.rank + i] || b[i] == 1;
      if (fits) return w;
    }
    return v;
  }

  ir::ValueId step() {
    ir::ValueId v = pick();
    const Shape s = shape(v);
    int64_t axis = s.rank ? next(s.rank) : 0;
    switch (next(12)) {
      case 0:
        return add("neg", {v});
      case 1:
        return add("tanh", {v});
      case 2:
        return add("add", {v, partner(v)});
      case 3:
        return add("mul", {partner(v), v});
      case 4:
        return add("maximum", {v, partner(v)});
      case 5:
        return s.rank ? add("reduce", {v},
                            {{"mode", std::string(next(2) ? "mean" : "max")},
                             {"axes", Ints{axis}},
                             {"keepdims", next(2) == 1}})
                      : v;
      case 6:
        return add("reshape", {v}, {{"shape", Ints{-1}}});
      case 7: {
        Ints perm;
        for (int i = 0; i < s.rank; ++i) perm.push_back((i + 1) % s.rank);
        return s.rank ? add("transpose", {v}, {{"perm", perm}}) : v;
      }
      case 8: {
        if (s.rank == 0 || s[static_cast<int>(axis)] < 2) return add("neg", {v});
        int64_t n = s[static_cast<int>(axis)], start = next(2), step = 1 + next(2);
        return add("slice", {v},
                   {{"axes", Ints{axis}}, {"starts", Ints{start}}, {"stops", Ints{n}}, {"steps", Ints{step}}});
      }
      case 9:
        return s.rank && s.rank < 4 ? add("concat", {v, v}, {{"axis", axis}}) : v;
      case 10: {
        Ints wide = to_ints(s);
        Ints out{2};
        for (int64_t d : wide) out.push_back(d);
        return s.rank < 3 && s.numel() < 500 ? add("broadcast_to", {v}, {{"shape", out}}) : v;
      }
      default: {
        if (s.rank != 2) return add("expand_dims", {v}, {{"axes", Ints{0}}});
        ir::ValueId m = add("matmul", {v, v}, {{"ta", false}, {"tb", true}});
        return add("tanh", {m});  // keeps values tame
      }
    }
  }

  void build(int nodes) {
    for (int i = 0; i < 3; ++i) {
      Meta m;
      m.shape = i == 2 ? Shape{5} : Shape{static_cast<int64_t>(2 + next(5)), 5};
      values.push_back(i == 0 ? g.add_var(format("v{}", i), m) : g.add_input(format("x{}", i), m));
    }
    float half = 0.5f;
    values.push_back(g.add_constant_copy({}, &half));
    while (static_cast<int>(g.n_nodes()) < nodes) {
      ir::ValueId v = step();
      if (shape(v).numel() > 2000) v = add("reduce", {v}, {{"mode", std::string("mean")}, {"axes", Ints{0}}});
      values.push_back(v);
    }
    for (int i = 0; i < 3; ++i) g.add_output(format("o{}", i), pick());
    if (next(2)) {
      ir::ValueId var = g.vars()[0].in, other = partner(var);
      ir::ValueId updated = add("sub", {var, other});
      if (g.meta(updated).same_type(g.meta(var))) g.commit(0, updated);
    }
  }
};

void expect_close(const ir::Graph& g, const char* what, const Meta& m, const Buffer& got, const Buffer& want) {
  auto a = read(m, got), b = read(m, want);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::abs(a[i] - b[i]) <= 1e-4f * (1 + std::abs(b[i])) || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << " element " << i << ": " << a[i] << " instead of " << b[i] << "\n"
        << ir::print(g, {.types = true});
}

class Fuzz : public testing::TestWithParam<int> {};

TEST_P(Fuzz, ProgramAgreesWithOracle) {
  for (int round = 0; round < 40; ++round) {
    Fuzzer f{static_cast<uint32_t>(GetParam() * 1000 + round)};
    f.build(8 + static_cast<int>(f.next(40)));
    const ir::Graph& g = f.g;
    ASSERT_EQ(ir::print(ir::parse(ir::print(g))), ir::print(g));
    for (int mode = 0; mode < 4; ++mode) {
      CompileOptions opt;
      opt.in_place = mode & 1;
      opt.poison = mode & 2;
      auto p = Program::compile(g, opt);
      verify_program(*p);
      for (uint32_t again = 0; again < 2; ++again) {
        std::vector<Buffer> in, vars;
        for (size_t i = 0; i < p->n_inputs(); ++i)
          in.push_back(random_buffer(p->input_meta(i), again * 10 + static_cast<uint32_t>(i)));
        for (size_t i = 0; i < p->n_vars(); ++i) vars.push_back(random_buffer(p->var_meta(i), again * 10 + 7));
        OracleResult want = interpret(g, in, vars);
        for (size_t i = 0; i < in.size(); ++i) p->bind_input(i, in[i]);
        for (size_t i = 0; i < vars.size(); ++i) p->bind_var(i, again ? std::move(vars[i]) : vars[i]);
        p->run();
        for (size_t i = 0; i < p->n_outputs(); ++i)
          expect_close(g, "output", p->output_meta(i), p->output(i), want.outputs[i]);
        for (size_t i = 0; i < p->n_vars(); ++i) expect_close(g, "var", p->var_meta(i), p->var(i), want.vars[i]);
        if (HasFatalFailure()) return;
        p->release_buffers();
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, testing::Range(0, 10));

}  // namespace
}  // namespace mge
