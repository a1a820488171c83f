// Random graphs through every pass alone, through passes in random order, and through the whole pipelines: the outputs
// and Vars must be those of the graph as it was, to the bit (a NaN is a NaN: its payload follows the order of
// operands). MGE_FUZZ_CASES says how many (make fuzz: more), MGE_FUZZ_SEED where to begin.
#include <cstdlib>
#include <set>

#include <gmock/gmock.h>

#include "integration/random_graph.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/interp/interp.h"
#include "pass/pipeline.h"
#include "plan/evaluate.h"
#include "plan/program.h"

namespace mge::ir {
struct GraphTestPeer {
  static Node& node(Graph& g, NodeId n) { return const_cast<Node&>(g.node(n)); }
  static Value& value(Graph& g, ValueId v) { return const_cast<Value&>(g.value(v)); }
  static auto& outputs(Graph& g) { return g.outputs_; }
};
}  // namespace mge::ir

namespace mge {
namespace {

int env(const char* name, int otherwise) {
  const char* v = std::getenv(name);
  return v ? std::atoi(v) : otherwise;
}

pass::PipelineOptions options(int level = 2) {
  return {.opt_level = level, .evaluate = kernel_evaluator(), .can_fuse = interp_can_fuse};
}

struct Bound {
  std::vector<Buffer> inputs, vars;
};

std::vector<std::string> run(const ir::Graph& g, const Bound& given) {
  auto p = Program::compile(g);
  for (size_t i = 0; i < given.inputs.size(); ++i) p->bind_input(i, given.inputs[i]);
  for (size_t i = 0; i < given.vars.size(); ++i) {
    const Meta& m = p->var_meta(i);
    Buffer own = allocate_buffer(m);  // runs write into it
    if (m.bytes()) std::memcpy(own.storage->ptr, given.vars[i].data(m.dtype), m.bytes());
    p->bind_var(i, std::move(own));
  }
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

bool is_nan(DType t, const char* p) {
  auto high = [&](size_t size, uint64_t exponent, uint64_t fraction) {
    uint64_t v = 0;
    std::memcpy(&v, p, size);
    return (v & exponent) == exponent && (v & fraction);
  };
  switch (t) {
    case DType::F16:
      return high(2, 0x7c00, 0x3ff);
    case DType::BF16:
      return high(2, 0x7f80, 0x7f);
    case DType::F32:
      return high(4, 0x7f800000, 0x7fffff);
    case DType::F64:
      return high(8, 0x7ff0000000000000, 0xfffffffffffff);
    default:
      return false;
  }
}

bool same(DType t, const std::string& a, const std::string& b) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  const size_t size = dtype_size(t);
  for (size_t i = 0; i + size <= a.size(); i += size)
    if (std::memcmp(&a[i], &b[i], size) != 0 && !(is_nan(t, &a[i]) && is_nan(t, &b[i]))) return false;
  return true;
}

std::vector<DType> result_types(const ir::Graph& g) {
  std::vector<DType> t;
  for (auto& o : g.outputs()) t.push_back(g.meta(o.value).dtype);
  for (auto& v : g.vars()) t.push_back(g.meta(v.in).dtype);
  return t;
}

std::vector<std::string_view> all_passes() {
  std::vector<std::string_view> names;
  for (auto list : {pass::pass_names(3), pass::inference_pass_names()})
    for (auto n : list)
      if (std::ranges::find(names, n) == names.end()) names.push_back(n);
  return names;
}

TEST(PassFuzz, EveryPassAloneAndInAnyOrderKeepsEveryBit) {
  install_interp();
  const int cases = env("MGE_FUZZ_CASES", 1000), first = env("MGE_FUZZ_SEED", 1);
  const auto passes = all_passes();
  std::map<std::string, int> changed;
  std::map<std::string, int> ops;
  int ran = 0;
  for (int seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(format("MGE_FUZZ_CASES=1 MGE_FUZZ_SEED={}", seed));
    RandomGraph r(static_cast<uint32_t>(seed));
    ir::Graph g = r.make(10 + r.pick(30));
    ir::verify(g);
    Bound given;
    for (auto v : g.inputs()) given.inputs.push_back(r.numbers(g.meta(v)));
    for (auto& v : g.vars())
      given.vars.push_back(g.value(v.in).name == "state" ? RandomGraph::generator() : r.numbers(g.meta(v.in)));
    std::vector<std::string> want;
    try {
      want = run(g, given);
    } catch (const Error& e) {
      continue;  // an index out of range, no kernel: nothing to compare with
    }
    ++ran;
    for (ir::NodeId n : g.order()) ++ops[g.node(n).op->name];
    const auto types = result_types(g);
    std::set<std::string_view> written;
    for (ir::NodeId n : g.order()) written.insert(g.node(n).op->name);
    auto check = [&](ir::Graph& h, const std::string& what) {
      ir::verify(h);
      // What nobody wrote says what it stands for (ir/explain.h).
      for (ir::NodeId n : h.order())
        ASSERT_TRUE(written.count(h.node(n).op->name) || !h.node(n).origins.empty() || h.node(n).op->name == "typecvt")
            << h.node(n).op->name << " after " << what;
      std::vector<std::string> got;
      ASSERT_NO_THROW(got = run(h, given)) << what << "\n" << ir::print(g, {.types = true}) << "\n" << ir::print(h);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(same(types[i], got[i], want[i])) << "result " << i << " after " << what << "\n"
                                                     << ir::print(g, {.types = true, .max_const_bytes = 32}) << "\n"
                                                     << ir::print(h, {.types = true, .max_const_bytes = 32});
    };
    for (auto name : passes) {
      ir::Graph h = g.clone();
      if (!pass::run_pass(name, h, options())) continue;
      ++changed[std::string(name)];
      check(h, std::string(name));
      if (HasFatalFailure()) return;
    }
    ir::Graph h = g.clone();
    std::string order;
    for (int i = 0; i < 8; ++i) {
      const std::string_view name = passes[static_cast<size_t>(r.pick(static_cast<int>(passes.size())))];
      order += std::string(name) + " ";
      pass::run_pass(name, h, options());
    }
    check(h, order);
    if (HasFatalFailure()) return;
    for (int level : {1, 2}) {
      h = g.clone();
      pass::optimize(h, options(level));
      check(h, format("level {}", level));
      if (HasFatalFailure()) return;
    }
  }
  if (cases < 100) return;
  EXPECT_GT(ran, cases / 3);
  // The graphs are rich enough to be a test.
  for (auto name : {"dce", "cse", "canonicalise", "arithmetic", "constant_fold", "fuse_elementwise", "move_casts"})
    EXPECT_GT(changed[name], cases / 60) << name;
  EXPECT_GT(ops.size(), 80u);
  for (auto& [name, n] : changed) RecordProperty(name, n);
}

// With every value-changing rewrite on the graph stays one that can be compiled and run.
TEST(PassFuzz, RewritesLeaveSoundGraphs) {
  install_interp();
  const int cases = env("MGE_FUZZ_CASES", 300), first = env("MGE_FUZZ_SEED", 1000);
  for (int seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph r(static_cast<uint32_t>(seed));
    ir::Graph g = r.make(30);
    Bound given;
    for (auto v : g.inputs()) given.inputs.push_back(r.numbers(g.meta(v)));
    for (auto& v : g.vars())
      given.vars.push_back(g.value(v.in).name == "state" ? RandomGraph::generator() : r.numbers(g.meta(v.in)));
    std::vector<std::string> want;
    try {
      want = run(g, given);
    } catch (const Error&) {
      continue;
    }
    const auto types = result_types(g);
    for (bool half : {false, true}) {
      ir::Graph h = g.clone();
      auto o = options();
      o.graph_opt.rewrites = o.inference.rewrites = ~0u;
      o.inference.f16_io_comp = half;
      pass::optimize_for_inference(h, o);
      // What one rewrite leaves (a dropout whose mask nobody reads any more, two casts that are now one value) another
      // takes the next time, one after the other: it settles.
      std::string before, now = ir::print(h);
      for (size_t round = 0; round <= g.n_nodes() && now != before; ++round) {
        before = std::exchange(now, {});
        pass::optimize_for_inference(h, o);
        now = ir::print(h);
      }
      EXPECT_EQ(now, before) << "not the same when done again";
      pass::optimize(h, o);
      ir::verify(h);
      EXPECT_EQ(result_types(h), types);
      try {
        run(h, given);
      } catch (const Error& e) {  // of an op that checks numbers: without dropout, for one, they are others
        ASSERT_NE(e.text().find(" at position "), std::string::npos) << e.text() << "\n"
                                                                     << ir::print(g, {.types = true}) << "\n"
                                                                     << ir::print(h, {.types = true});
      }
    }
  }
}

// A graph edited into nonsense, as text: any edit is a graph or an error, never a crash.
TEST(PassFuzz, EditedTextIsAGraphOrAnError) {
  const int cases = env("MGE_FUZZ_CASES", 1000), first = env("MGE_FUZZ_SEED", 1);
  int refused = 0, taken = 0;
  for (int seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph r(static_cast<uint32_t>(seed % 50));
    std::string text = ir::print(r.make(8));
    RandomGraph edit(static_cast<uint32_t>(seed));
    for (int i = 0; i < 1 + edit.pick(3); ++i) {
      const auto at = static_cast<size_t>(edit.pick(static_cast<int>(text.size())));
      switch (edit.pick(4)) {
        case 0:
          text[at] = static_cast<char>(32 + edit.pick(95));
          break;
        case 1:
          text.erase(at, static_cast<size_t>(1 + edit.pick(20)));
          break;
        case 2:
          text.insert(at, text.substr(static_cast<size_t>(edit.pick(static_cast<int>(text.size()))), 12));
          break;
        default:
          text[at] = "0123456789%,[]{}="[edit.pick(17)];
      }
      if (text.empty()) text = "g";
    }
    try {
      ir::Graph g = ir::parse(text);
      ir::verify(g);
      pass::optimize(g, options(2));
      ++taken;
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::Internal) << e.text() << "\n" << text;
      ++refused;
    }
  }
  if (cases < 100) return;
  EXPECT_GT(refused, 0);
  EXPECT_GT(taken, 0);
}

}  // namespace
// A graph edited into nonsense is refused with a text that names the node, and nothing crashes on the way.
TEST(PassFuzz, NonsenseIsRefused) {
  const int cases = env("MGE_FUZZ_CASES", 1000), first = env("MGE_FUZZ_SEED", 1);
  int refused = 0;
  for (int seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph r(static_cast<uint32_t>(seed));
    ir::Graph g = r.make(15);
    if (g.n_nodes() < 2) continue;
    const auto order = g.order();
    const ir::NodeId n = order[static_cast<size_t>(r.pick(static_cast<int>(order.size())))];
    ir::Node& x = ir::GraphTestPeer::node(g, n);
    const auto some = static_cast<ir::ValueId>(r.pick(static_cast<int>(g.n_values()) + 4) - 2);
    bool names_node = true;
    switch (r.pick(9)) {
      case 0:
        if (x.inputs.empty()) continue;
        if (x.inputs[0] == some) continue;
        x.inputs[0] = some;
        names_node = false;  // the use list that is short may be told first
        break;
      case 1:
        x.inputs.push_back(some);
        names_node = false;
        break;
      case 2:
        if (x.outputs.empty()) continue;
        ir::GraphTestPeer::value(g, x.outputs[0]).meta.shape.push_back(7);
        break;
      case 3:
        x.outputs.push_back(some);
        break;
      case 4:
        ir::GraphTestPeer::outputs(g).push_back({"extra", some});
        names_node = false;
        break;
      case 5:
        x.op = nullptr;
        break;
      case 6:
        x.next = order[0];
        names_node = false;
        break;
      case 7:
        x.token_in = some;
        x.token_out = some;
        break;
      default:
        x.loc = 100000;
    }
    try {
      ir::verify(g);
    } catch (const Error& e) {
      ++refused;
      EXPECT_EQ(e.kind(), ErrorKind::Internal);
      EXPECT_THAT(e.text(), testing::HasSubstr("graph fuzz"));
      if (names_node) {
        EXPECT_THAT(e.text(), testing::AnyOf(testing::HasSubstr(" in `"), testing::HasSubstr("node ")));
      }
    }
  }
  if (cases >= 100) {
    EXPECT_GT(refused, cases / 2);
  }
}

}  // namespace mge
