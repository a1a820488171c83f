// Random graphs: the program must agree with the oracle, whatever order the nodes come in, with and without the order
// that the planner chooses, with in-place reuse on and off, under poison and canaries, twice in a row. Vars are given
// away or not, exchanged, committed twice, read after they were updated.
//   MGE_FUZZ_CASES=100000 MGE_FUZZ_SEED=7 mge_test_plan --gtest_filter='*Fuzz*'
#include <cmath>
#include <cstdlib>

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

  ir::ValueId partner_of_shape(ir::ValueId v) {
    for (int tries = 0; tries < 8; ++tries)
      if (ir::ValueId w = pick(); shape(w) == shape(v)) return w;
    return v;
  }

  ir::ValueId step() {
    ir::ValueId v = pick();
    const Shape s = shape(v);
    int64_t axis = s.rank ? next(s.rank) : 0;
    switch (next(16)) {
      case 12:  // a large one from small ones and back: something to wait with
        if (s.rank == 1 && s.numel() < 64)
          return add("reduce", {add("add", {add("expand_dims", {v}, {{"axes", Ints{1}}}), v})},
                     {{"mode", std::string("mean")}, {"axes", Ints{0}}, {"keepdims", false}});
        return add("abs", {v});
      case 13: {  // written into a part of another
        if (s.rank == 0 || s[static_cast<int>(axis)] < 2) return add("neg", {v});
        std::vector<NamedAttr> part{
            {"axes", Ints{axis}}, {"starts", Ints{1}}, {"stops", Ints{s[static_cast<int>(axis)]}}, {"steps", Ints{1}}};
        return add("set_slice",
                   {v, add("tanh", {add("slice",
                                        {
                                            partner_of_shape(v),
                                        },
                                        part)})},
                   part);
      }
      case 14:
        return add("typecvt", {add("typecvt", {add("tanh", {v})}, {{"dtype", std::string("float16")}})},
                   {{"dtype", std::string("float32")}});
      case 15:
        return add("where", {add("lt", {v, partner(v)}), v, add("neg", {v})});
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
      case 9: {
        if (s.rank == 0 || s.rank == 4) return v;
        if (next(2) || s.rank == 3 || s.numel() > 30) return add("concat", {v, v}, {{"axis", axis}});
        // Blocks of whole cache lines, which may be made where they are joined; some are read again.
        Ints wide{16};
        for (int64_t d : s) wide.push_back(d);
        const ir::ValueId w = add("broadcast_to", {v}, {{"shape", wide}}), a = add("tanh", {w}), b = add("neg", {w});
        ir::ValueId joined = add("concat", {a, next(2) ? b : w, add("mul", {w, w})}, {{"axis", int64_t{0}}});
        if (next(2)) joined = add("concat", {joined, add("tanh", {next(2) ? a : joined})}, {{"axis", int64_t{0}}});
        if (next(3) == 0) values.push_back(next(2) ? a : b);
        return next(2) ? joined : add("neg", {joined});
      }
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
    const int n_vars = 1 + static_cast<int>(next(3));
    Meta state;
    state.shape = Shape{static_cast<int64_t>(2 + next(5)), 5};
    for (int i = 0; i < n_vars; ++i) values.push_back(g.add_var(format("v{}", i), state));
    for (int i = 1; i < 3; ++i) {
      Meta m;
      m.shape = i == 2 ? Shape{5} : Shape{static_cast<int64_t>(2 + next(5)), 5};
      values.push_back(g.add_input(format("x{}", i), m));
    }
    float half = 0.5f;
    values.push_back(g.add_constant_copy({}, &half));
    while (static_cast<int>(g.n_nodes()) < nodes) {
      ir::ValueId v = step();
      if (shape(v).numel() > 2000) v = add("reduce", {v}, {{"mode", std::string("mean")}, {"axes", Ints{0}}});
      values.push_back(v);
    }
    for (int i = 0; i < 3; ++i) g.add_output(format("o{}", i), pick());
    for (size_t i = 0; i < g.vars().size(); ++i) {
      const ir::ValueId var = g.vars()[i].in;
      const ir::ValueId updates[] = {add("sub", {var, partner(var)}), g.vars()[next(static_cast<uint32_t>(n_vars))].in,
                                     partner_of_shape(var), add("sgd_update", {var, partner_of_shape(var), rate()})};
      const ir::ValueId to = updates[next(4)];
      if (next(4) && g.meta(to).same_type(g.meta(var))) g.commit(i, to);
      if (next(4) == 0 && i + 1 < g.vars().size() && g.meta(to).same_type(g.meta(var))) g.commit(i + 1, to);
    }
  }
  ir::ValueId rate() {
    const float lr = 0.25f;
    return g.add_constant_copy({}, &lr);
  }

  // Any order that the dependencies allow is one that a call could have been recorded in.
  void shuffle() {
    std::vector<ir::NodeId> left = g.order(), out;
    std::vector<bool> done(g.n_node_ids());
    while (!left.empty()) {
      std::vector<size_t> free;
      for (size_t i = 0; i < left.size(); ++i) {
        bool ready = true;
        for (ir::ValueId v : g.node(left[i]).inputs)
          ready &= g.value(v).producer == ir::kNone || done[g.value(v).producer];
        if (ready) free.push_back(i);
      }
      const size_t i = free[next(static_cast<uint32_t>(free.size()))];
      out.push_back(left[i]);
      done[left[i]] = true;
      left.erase(left.begin() + static_cast<int64_t>(i));
    }
    g.reorder(out);
  }
};

void expect_close(const ir::Graph& g, const char* what, const Meta& m, const Buffer& got, const Buffer& want) {
  auto a = read(m, got), b = read(m, want);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::abs(a[i] - b[i]) <= 1e-4f * (1 + std::abs(b[i])) || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << " element " << i << ": " << a[i] << " instead of " << b[i] << "\n"
        << ir::print(g, {.types = true});
}

uint32_t setting(const char* name, uint32_t otherwise) {
  const char* s = std::getenv(name);
  return s ? static_cast<uint32_t>(std::atol(s)) : otherwise;
}

void check_graph(const ir::Graph& g, const CompileOptions& opt) {
  auto p = Program::compile(g, opt);
  verify_program(*p);
  for (uint32_t again = 0; again < 2; ++again) {
    std::vector<Buffer> in, vars;
    for (size_t i = 0; i < p->n_inputs(); ++i)
      in.push_back(random_buffer(p->input_meta(i), again * 10 + static_cast<uint32_t>(i)));
    for (size_t i = 0; i < p->n_vars(); ++i)
      vars.push_back(random_buffer(p->var_meta(i), again * 10 + 7 + static_cast<uint32_t>(i)));
    OracleResult want = interpret(g, in, vars);
    for (size_t i = 0; i < in.size(); ++i) p->bind_input(i, in[i]);
    // The oracle's results may be the very vars.
    std::vector<Buffer> kept;
    for (auto& v : want.vars) kept.push_back(allocate_copy(p->var_meta(0), v));
    want.vars.clear();
    for (size_t i = 0; i < vars.size(); ++i) {
      if (again)
        p->bind_var(i, std::move(vars[i]));
      else
        p->bind_var(i, vars[i]);
    }
    if (again) vars.clear();
    p->run();
    for (size_t i = 0; i < p->n_outputs(); ++i)
      expect_close(g, "output", p->output_meta(i), p->output(i), want.outputs[i]);
    for (size_t i = 0; i < p->n_vars(); ++i) expect_close(g, "var", p->var_meta(i), p->var(i), kept[i]);
    if (testing::Test::HasFatalFailure()) return;
    p->release_buffers();
  }
}

class Fuzz : public testing::TestWithParam<int> {};

TEST_P(Fuzz, ProgramAgreesWithOracle) {
  const uint32_t cases = setting("MGE_FUZZ_CASES", 400) / 10, seed = setting("MGE_FUZZ_SEED", 0);
  for (uint32_t round = 0; round < cases; ++round) {
    Fuzzer f{(seed * 10 + static_cast<uint32_t>(GetParam())) * 1000003 + round};
    f.build(8 + static_cast<int>(f.next(40)));
    ASSERT_EQ(ir::print(ir::parse(ir::print(f.g))), ir::print(f.g));
    for (uint32_t mode = 0; mode < 16; ++mode) {
      SCOPED_TRACE(format("case {} of seed {}, mode {}", round, seed * 10 + static_cast<uint32_t>(GetParam()), mode));
      check_graph(f.g, {.in_place = (mode & 1) != 0,
                        .reorder = (mode & 4) != 0,
                        .recompute_to = mode & 8 ? 0 : CompileOptions::kComputeOnce,
                        .poison = (mode & 2) != 0});
      if (HasFatalFailure()) return;
      if (mode % 4 == 3) f.shuffle();
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, testing::Range(0, 10));

}  // namespace
}  // namespace mge
