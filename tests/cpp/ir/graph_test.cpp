#include "ir/graph.h"

#include <gmock/gmock.h>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "op/in_build.h"

namespace mge::ir {

struct GraphTestPeer {  // breaks invariants from outside
  static Node& node(Graph& g, NodeId n) { return g.nodes_[n]; }
  static Value& value(Graph& g, ValueId v) { return g.values_[v]; }
  static std::vector<Output>& outputs(Graph& g) { return g.outputs_; }
};

namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& f, ErrorKind kind = ErrorKind::Internal) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    return e.text();
  }
  return "no error";
}
std::string verify_error(Graph& g) {
  return error_of([&] { verify(g); });
}

const char kText[] = R"(graph main(%x: f32[2,3]) vars(%w: f32[2,3]) {
  %a = mul %x, %w
  %b = add %a, %x
  %c = neg %b
} returns(%c) commits(%w <- %b)
)";
NodeId nth(const Graph& g, size_t i) { return g.order()[i]; }

TEST(Graph, UseListsFollowRewrites) {
  Graph g = parse(kText);
  ValueId a = g.node(nth(g, 0)).outputs[0], b = g.node(nth(g, 1)).outputs[0], x = g.inputs()[0];
  EXPECT_EQ(g.use_count(b), 2u);
  EXPECT_TRUE(g.escapes(b));
  EXPECT_FALSE(g.escapes(a));
  g.replace_all_uses(b, a);
  verify(g);
  EXPECT_EQ(g.use_count(b), 0u);
  EXPECT_EQ(g.vars()[0].out, a);
  g.erase(nth(g, 1));
  verify(g);
  EXPECT_EQ(g.n_nodes(), 2u);
  EXPECT_EQ(g.use_count(x), 1u);
  EXPECT_THAT(error_of([&] { g.erase(nth(g, 0)); }), HasSubstr("cannot erase mul"));
}

TEST(Graph, KeepsSomeOutputs) {
  Graph g = parse(kText);
  ValueId b = g.node(nth(g, 1)).outputs[0];
  g.set_rerun(nth(g, 1), 7);
  g.add_output("b", b);
  const std::string keep[] = {"b", "unknown"};
  Graph part = g.clone();
  part.keep_outputs(keep);
  verify(part);
  ASSERT_EQ(part.outputs().size(), 1u);
  EXPECT_EQ(part.outputs()[0].value, b);
  EXPECT_EQ(part.node(nth(part, 1)).rerun, 7u);  // nothing about the nodes is lost
  EXPECT_EQ(g.outputs().size(), 2u);
}

TEST(Graph, CloneIsIndependent) {
  Graph g = parse(kText);
  Graph c = g.clone();
  c.replace_all_uses(c.node(nth(c, 1)).outputs[0], c.node(nth(c, 0)).outputs[0]);
  c.erase(nth(c, 1));
  EXPECT_EQ(print(g), kText);
  verify(g);
  verify(c);
}

TEST(Graph, InsertBeforeKeepsOrder) {
  Graph g = parse(kText);
  ValueId x = g.inputs()[0];
  NodeId n = g.add_node(OpRegistry::global().get("exp"), nullptr, {{x}}, kNoLoc, nth(g, 1));
  verify(g);
  EXPECT_EQ(g.order()[1], n);
  NodeId first = g.add_node(OpRegistry::global().get("exp"), nullptr, {{x}}, kNoLoc, nth(g, 0));
  EXPECT_EQ(g.first(), first);
  verify(g);
}

TEST(Graph, NamesAreChecked) {
  Graph g;
  g.add_input("x", {});
  EXPECT_THAT(error_of([&] { g.add_var("x", {}); }, ErrorKind::Value), HasSubstr("already an input or var called 'x'"));
  EXPECT_THAT(error_of([&] { g.add_input("", {}); }, ErrorKind::Value), HasSubstr("needs a name"));
}

TEST(Graph, LocationsAreInterned) {
  Graph g;
  LocId a = g.loc("f.py", 3, "main"), b = g.loc("f.py", 3, "main"), c = g.loc("f.py", 3, "main", "backward");
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(g.location(c).str(), "f.py:3 in main (backward)");
  EXPECT_EQ(g.loc("", 0), kNoLoc);
}

TEST(Graph, InferAllFollowsInputShapes) {
  Graph g = parse(
      "graph g(%x: f32[2,3], %w: f32[4,3]) {\n  %y = matmul %x, %w {tb=true} loc a.py:7\n  %z = relu %y\n} "
      "returns(%z)");
  Meta m;
  m.shape = Shape{9, 3};
  g.set_input_meta(0, m);
  g.infer_all();
  EXPECT_EQ(g.meta(g.outputs()[0].value).shape, (Shape{9, 4}));
  m.shape = Shape{9, 5};
  g.set_input_meta(0, m);
  EXPECT_THAT(error_of([&] { g.infer_all(); }, ErrorKind::Value), HasSubstr("at a.py:7"));
}

TEST(Graph, ErasingATokenNodeSplicesTheChain) {
  Graph g = parse(R"(graph main(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]}
  %2, %3 = rng_uniform %s {shape=[2]}
  %4, %5 = rng_uniform %1 {shape=[2]}
} returns(%5))");
  g.erase(nth(g, 1));
  verify(g);
  EXPECT_THAT(print(g), HasSubstr("token(%t0 -> %t1)"));
  // Inserting in the middle threads the token through it.
  g.add_node(OpRegistry::global().get("rng_uniform"), g.node(nth(g, 0)).attrs, {{g.inputs()[0]}}, kNoLoc, nth(g, 1));
  verify(g);
}

constexpr char kTwoGenerators[] = R"(graph main(%s: i32[4], %z: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]}
  %2, %3 = rng_uniform %z {shape=[2]}
  %4, %5 = rng_uniform %1 {shape=[2]}
  %6, %7 = rng_uniform %s {shape=[3]}
} returns(%0, %2, %4, %6))";

TEST(Effects, DrawsOfDifferentGeneratorsMaySwap) {
  Graph g = parse(kTwoGenerators);
  NodeId a = nth(g, 0), b = nth(g, 1), c = nth(g, 2), d = nth(g, 3);
  EXPECT_EQ(g.domain_of(a), g.domain_of(c));
  EXPECT_EQ(g.domain_of(a), g.domain_of(d));
  EXPECT_NE(g.domain_of(a), g.domain_of(b));
  EXPECT_EQ(g.refuse_move(b, a), "");
  g.move(b, a);
  verify(g);
  EXPECT_EQ(nth(g, 0), b);
  g.move(b, kNone);
  verify(g);
  EXPECT_EQ(nth(g, 3), b);
  EXPECT_EQ(print(parse(print(g))), print(g));
  // Of one generator they may not, whether the state is handed on or taken again.
  EXPECT_EQ(g.refuse_move(c, a), "rng_uniform and rng_uniform depend on each other");
  EXPECT_EQ(g.refuse_move(d, a), "rng_uniform and rng_uniform both act on " + g.domain_of(a));
  EXPECT_EQ(g.refuse_move(a, kNone), "rng_uniform and rng_uniform depend on each other");
  EXPECT_THROW(g.move(d, a), Error);
}

TEST(Effects, GeneratorsThatBecomeOneShareAChain) {
  Graph g = parse(kTwoGenerators);
  g.replace_all_uses(g.inputs()[1], g.inputs()[0]);
  verify(g);
  EXPECT_EQ(g.refuse_move(nth(g, 1), nth(g, 0)), "rng_uniform and rng_uniform both act on " + g.domain_of(nth(g, 0)));
  EXPECT_EQ(print(parse(print(g))), print(g));
  Graph h = parse(kTwoGenerators);
  h.replace_input(nth(h, 3), 0, h.inputs()[1]);
  verify(h);
  EXPECT_EQ(h.domain_of(nth(h, 3)), h.domain_of(nth(h, 1)));
  EXPECT_EQ(print(parse(print(h))), print(h));
}

struct SendAttrs {
  std::string group = "world";
  static constexpr auto fields() { return field_list("group", &SendAttrs::group); }
};

TEST(Effects, CollectivesOfAGroupKeepTheirOrder) {
  OpRegistry ops;
  auto same = [](InferCtx& c) { c.out[0] = c.x(0); };
  auto group = [](const AttrsBase* a) { return attrs_as<SendAttrs>(a).group; };
  ops.op("send").attrs<SendAttrs>().in("x").out("y").effect(group).infer(same);
  ops.op("barrier").attrs<SendAttrs>().in("x").out("y").traits(kEffect).infer(same);
  const OpDef &send = *ops.find("send"), &barrier = *ops.find("barrier");
  Graph g;
  Meta m;
  m.shape = Shape{3};
  ValueId x = g.add_input("x", m);
  auto add = [&](const OpDef& op, const char* group) { return g.add_node(op, make_attrs(SendAttrs{group}), {&x, 1}); };
  NodeId a = add(send, "world"), b = add(send, "rows"), c = add(send, "world"), d = add(barrier, ""),
         e = add(barrier, "x");
  verify(g);
  EXPECT_EQ(g.refuse_move(c, b), "");
  EXPECT_EQ(g.refuse_move(c, a), "send and send both act on effect world");
  EXPECT_EQ(g.refuse_move(d, a), "");
  EXPECT_EQ(g.refuse_move(e, d), "barrier and barrier both act on effect");  // no domain of their own: one for all
  g.move(b, kNone);
  verify(g);
}

TEST(GraphBuilder, RulesEmitWithPromotionAndConstants) {
  Graph g;
  Meta i;
  i.dtype = DType::I32;
  i.shape = Shape{3};
  ValueId x = g.add_input("x", i), y = g.add_input("y", [] {
    Meta m;
    m.shape = Shape{3};
    return m;
  }());
  GraphBuilder b(&g, {.loc = g.loc("rule.py", 1)});
  Val v = b.val(x) * b.val(y) + 0.5;
  g.add_output("v", GraphBuilder::id(v));
  EXPECT_EQ(print(g), R"(graph main(%x: i32[3], %y: f32[3]) {
  const %c0: f32[] = 0000003f
  %0 = typecvt %x                                   loc rule.py:1
  %1 = mul %0, %y                                   loc rule.py:1
  %2 = add %1, %c0                                  loc rule.py:1
} returns(v=%2)
)");
}

TEST(GraphBuilder, ScalarsOfEveryDtype) {
  Graph g;
  auto hex = [&](double v, DType t) {
    Meta m;
    m.dtype = t;
    ValueId c = add_scalar(g, v, m);
    std::string s;
    for (size_t i = m.bytes(); i-- > 0;)
      s += format("{:02x}", static_cast<const unsigned char*>(g.constant_of(c)->data())[i]);
    return s;
  };
  EXPECT_EQ(hex(1, DType::F16), "3c00");
  EXPECT_EQ(hex(65504, DType::F16), "7bff");
  EXPECT_EQ(hex(65520, DType::F16), "7c00");
  EXPECT_EQ(hex(5.9604644775390625e-08, DType::F16), "0001");
  EXPECT_EQ(hex(1.0 / 3, DType::F16), "3555");
  EXPECT_EQ(hex(-2, DType::BF16), "c000");
  EXPECT_EQ(hex(-1, DType::I16), "ffff");
  EXPECT_EQ(hex(0.3, DType::Bool), "01");
  EXPECT_EQ(hex(1, DType::F64), "3ff0000000000000");
}

TEST(Verify, AcceptsAGoodGraph) {
  Graph g = parse(kText);
  verify(g);
}
TEST(Verify, UseBeforeDefinition) {
  Graph g = parse(kText);
  ValueId c = g.node(nth(g, 2)).outputs[0];
  g.replace_input(nth(g, 1), 1, c);
  EXPECT_THAT(verify_error(g), HasSubstr("used before its definition in `%b = add"));
}
TEST(Verify, WrongType) {
  Graph g = parse(kText);
  GraphTestPeer::value(g, g.node(nth(g, 2)).outputs[0]).meta.shape = Shape{7};
  EXPECT_THAT(verify_error(g), HasSubstr("recorded as float32[7] but inferred as float32[2,3]"));
}
TEST(Verify, BrokenUseList) {
  Graph g = parse(kText);
  GraphTestPeer::value(g, g.inputs()[0]).users.push_back(nth(g, 2));
  EXPECT_THAT(verify_error(g), HasSubstr("the use list of"));
}
TEST(Verify, WrongArity) {
  Graph g = parse(kText);
  GraphTestPeer::node(g, nth(g, 1)).inputs.pop_back();
  EXPECT_THAT(verify_error(g), HasSubstr("1 inputs"));
}
TEST(Verify, MissingAttrs) {
  Graph g = parse("graph g(%x: f32[2]) {\n  %y = reduce %x\n} returns(%y)");
  GraphTestPeer::node(g, nth(g, 0)).attrs.reset();
  EXPECT_THAT(verify_error(g), HasSubstr("missing attrs"));
}
TEST(Verify, OutputWithoutDefinition) {
  Graph g = parse(kText);
  GraphTestPeer::outputs(g)[0].value = 1000;
  EXPECT_THAT(verify_error(g), HasSubstr("has no definition"));
}
TEST(Verify, CommitOfAnotherType) {
  Graph g = parse(kText);
  GraphTestPeer::value(g, g.vars()[0].in).meta.dtype = DType::F64;
  EXPECT_THAT(verify_error(g), HasSubstr("inference fails"));
}
TEST(Verify, BrokenOrder) {
  Graph g = parse(kText);
  GraphTestPeer::node(g, nth(g, 1)).prev = nth(g, 2);
  EXPECT_THAT(verify_error(g), HasSubstr("order links"));
}
TEST(Verify, ForkedToken) {
  Graph g = parse(R"(graph main(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]}
  %2, %3 = rng_uniform %s {shape=[2]}
} returns(%1, %3))");
  GraphTestPeer::node(g, nth(g, 1)).token_in = g.node(nth(g, 0)).token_in;
  EXPECT_THAT(verify_error(g), HasSubstr("token chain"));
}
TEST(Verify, EffectWithoutToken) {
  Graph g = parse("graph main(%s: i32[4]) {\n  %0, %1 = rng_uniform %s {shape=[2]}\n} returns(%1)");
  GraphTestPeer::node(g, nth(g, 0)).token_out = kNone;
  EXPECT_THAT(verify_error(g), HasSubstr("without a token"));
}

}  // namespace
}  // namespace mge::ir
