#include "ir/text.h"

#include <gmock/gmock.h>

#include "ir/builder.h"
#include "op/shape/shape_ops.h"

namespace mge::ir {
namespace {

using testing::HasSubstr;

void round_trip(const std::string& text) { EXPECT_EQ(print(parse(text)), text); }

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value) << e.text();
    return e.text();
  }
  return "parsed";
}

TEST(IrText, RoundTripIsIdentical) {
  round_trip(R"(graph step(%x: f32[8,16], %t: i32[8]) vars(%w: f32[4,16], %unused: f64[]) {
  const %c0: f32[] = 0000003f
  const %table: i32[2] = 0100000002000000
  %0 = matmul %x, %w {tb=true}                      loc train.py:31
  %y = mul %0, %c0                                  loc train.py:32 in step (backward) of net.head
  %l, %p = softmax_xent %y, %t                      loc "my file.py":33
  %1 = sub %w, %w
} returns(%l, probabilities=%p, %0, %table) commits(%w <- %1)
)");
}

TEST(IrText, EmptyGraph) { round_trip("graph main() {\n} returns()\n"); }

TEST(IrText, OddNamesAreQuoted) {
  round_trip(R"(graph "a graph"(%"my x": f32[2], %"0": f32[2], %"c1": f32[2], %"t\"q\\": f32[2]) {
  %0 = add %"my x", %"0"
  %1 = add %"c1", %"t\"q\\"
  %a.b/c:d-e = add %0, %1
} returns(%a.b/c:d-e, "the sum"=%0)
)");
}

TEST(IrText, TypesAttributesAndScalars) {
  std::string text = R"(graph main(%x: f16[2,0,3], %q: qint8(0.1,3)[4], %b: bool[]) {
  %0 = reshape %x {shape=[0,-1]} : f16[0,0]
  %1 = full {shape=[2,2], value=-inf, dtype=int32} : i32[2,2]
} returns(%0, %1)
)";
  EXPECT_THAT(error_of(text), HasSubstr("graph text"));  // -1 is ambiguous with no elements
  text = R"(graph main(%x: f16[2,0,3], %q: qint8(0.1,3)[4], %b: bool[]) {
  %0 = reshape %x {shape=[0,6]} : f16[0,6]
  %1 = full {shape=[2,2], value=-inf, dtype=float64} : f64[2,2]
} returns(%0, %1)
)";
  EXPECT_EQ(print(parse(text), {.types = true}), text);
}

// It was a call through a null pointer.
TEST(IrText, AnOpWithoutAttributesMayHaveEmptyBraces) {
  EXPECT_EQ(print(parse("graph g(%x: f32[2]) {\n  %y = neg %x {}\n} returns(%y)\n")),
            "graph g(%x: f32[2]) {\n  %y = neg %x\n} returns(%y)\n");
}

TEST(IrText, LongNamesForDtypesAreUnderstood) {
  EXPECT_EQ(print(parse("graph g(%x: float32[1]) {\n} returns(%x)")), "graph g(%x: f32[1]) {\n} returns(%x)\n");
}

TEST(IrText, DuplicateNamesArePrintedApart) {
  Graph g;
  Meta m;
  ValueId x = g.add_input("x", m);
  ValueId a = g.add1("neg", nullptr, {x}), b = g.add1("neg", nullptr, {a});
  g.set_name(a, "y");
  g.set_name(b, "y");
  g.add_output("y", b);
  std::string text = print(g);
  EXPECT_THAT(text, HasSubstr("%y.1 = neg %y"));
  EXPECT_THAT(text, HasSubstr("returns(y=%y.1)"));
  round_trip(text);
}

TEST(IrText, LargeConstantsArePrintedByTypeOnly) {
  Graph g;
  Meta m;
  m.shape = Shape{100};
  std::vector<float> data(100, 1.f);
  g.add_output("c", g.add_constant_copy(m, data.data(), "c"));
  EXPECT_EQ(print(g), "graph main() {\n  const %c: f32[100]\n} returns(%c)\n");
  EXPECT_FALSE(parse(print(g)).constants()[0].storage);
  Graph full = parse(print(g, {.max_const_bytes = 1000}));
  EXPECT_EQ(std::memcmp(full.constants()[0].data(), data.data(), 400), 0);
}

TEST(IrText, TokensChainEffects) {
  std::string text = R"(graph main(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]} token(entry -> %t0)
  %2, %3 = rng_uniform %1 {shape=[2]} token(%t0 -> %t1)
} returns(%0, %2, %3)
)";
  round_trip(text);
  EXPECT_THAT(error_of(R"(graph main(%s: i32[4]) {
  %0, %1 = rng_uniform %s {shape=[2]} token(entry -> %t0)
  %2, %3 = rng_uniform %1 {shape=[2]} token(entry -> %t1)
} returns(%0, %2))"),
              HasSubstr("3:"));
}

TEST(IrText, EveryGeneratorHasAChainOfItsOwn) {
  round_trip(R"(graph main(%s: i32[4], %z: i32[4], %x: f32[8]) {
  %0, %1 = rng_uniform %s {shape=[2]} token(entry -> %t0)
  %2, %3 = rng_uniform %z {shape=[2]} token(entry -> %t1)
  %4 = rng_skip %1 {n=8}
  %5, %6, %7 = dropout %x, %4 token(%t0 -> %t2)
  %8, %9 = rng_normal %3 {shape=[2]} token(%t1 -> %t3)
} returns(%0, %2, %5, %8, %7, %9)
)");
}

TEST(IrText, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("grph x() {"), "graph text 1:1: expected 'graph', got 'grph x() {'.");
  EXPECT_EQ(error_of("graph g(%x: f33[2]) {"), "graph text 1:13: expected a type such as f32[2,3], got 'f33[2]) {'.");
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n  %0 = neg %y\n} returns()"), "graph text 2:12: %y is not defined.");
  EXPECT_THAT(error_of("graph g(%x: f32[2]) {\n  %0 = ngg %x\n} returns()"),
              HasSubstr("graph text 2:8: op: there is no op 'ngg'"));
  EXPECT_THAT(error_of("graph g(%x: f32[2]) {\n  %0 = neg %x {a=1}\n} returns()"), HasSubstr("graph text 2:16"));
  EXPECT_THAT(error_of("graph g(%x: f32[2], %y: f32[3]) {\n  %0 = add %x, %y\n} returns()"),
              HasSubstr("graph text 2:8: add:"));
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n  %0, %1 = neg %x\n} returns()"),
            "graph text 2:12: neg has 1 results, 2 are named.");
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n  %0 = neg %x : f32[3]\n} returns()"),
            "graph text 2:15: result 0 is f32[2], the text says f32[3].");
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n  %0 = neg %x\n  %0 = neg %x\n} returns()"),
            "graph text 3:3: %0 is defined twice.");
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n  const %c: f32[1] = 00\n} returns()"),
            "graph text 2:22: f32[1] takes 4 bytes, 1 are given.");
  EXPECT_EQ(error_of("graph g(%x: f32[2]) {\n} returns(%x) commits(%x <- %x)"),
            "graph text 2:23: only a var can be committed.");
  EXPECT_THAT(error_of("graph g(%x: f32[2]) {"), HasSubstr("got the end"));
  EXPECT_THAT(error_of("graph g(%x: f32[1000000000,1000000000,1000000000]) {\n} returns()"),
              HasSubstr("graph text 1:"));
  EXPECT_THAT(error_of("graph g(%x: f32[2]) {\n} returns() junk"), HasSubstr("2:13: expected the end of the text"));
}

TEST(IrText, CommentsAndFreeLayout) {
  Graph g = parse("graph g ( %x : f32[2] ) # note\n{ %0 = neg %x # more\n  %1 = neg %0 }\nreturns ( %1 )");
  EXPECT_EQ(g.n_nodes(), 2u);
}

TEST(IrText, GarbageNeverCrashes) {
  std::string good = R"(graph step(%x: f32[8,16]) vars(%w: f32[4,16]) {
  const %c0: f32[] = 0000003f
  %0 = matmul %x, %w {tb=true}   loc train.py:31 in f (backward)
  %1 = mul %0, %c0
} returns(%1, a=%0) commits(%w <- %w)
)";
  uint32_t seed = 1;
  auto next = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
  for (int i = 0; i < 3000; ++i) {
    std::string t = good;
    for (int k = next() % 3; k >= 0; --k) {
      size_t at = next() % t.size();
      switch (next() % 3) {
        case 0:
          t[at] = static_cast<char>(32 + next() % 95);
          break;
        case 1:
          t.erase(at, next() % 10);
          break;
        default:
          t.insert(at, std::string(1, "%{}[]()=:,\"<->"[next() % 14]));
      }
    }
    try {
      parse(t);
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::Internal) << e.text() << "\n" << t;
    }
  }
}

}  // namespace
}  // namespace mge::ir
