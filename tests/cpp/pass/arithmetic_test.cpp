#include "pass/arithmetic.h"

#include "pass/options.h"
#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

constexpr const char* kOne = "0000803f";
constexpr const char* kZero = "00000000";
constexpr const char* kMinusZero = "00000080";

std::string graph(const std::string& c, const std::string& body, const std::string& type = "f32") {
  return "graph g(%x: " + type + "[2,3], %z: " + type + "[2,3]) {\n  const %c: " + type + "[] = " + c + "\n" + body +
         "} returns(out=%y)\n";
}
void gone(const std::string& c, const std::string& body, const std::string& type = "f32", uint32_t rewrites = 0) {
  Graph g = ir::parse(graph(c, body, type));
  EXPECT_TRUE(arithmetic(g, true, rewrites)) << body;
  ir::verify(g);
  EXPECT_EQ(ir::print(g), graph(c, "", type).replace(graph(c, "", type).find("%y"), 2, "%x")) << body;
}
void kept(const std::string& c, const std::string& body, const std::string& type = "f32", uint32_t rewrites = 0) {
  expect_unchanged([&](Graph& g) { return arithmetic(g, true, rewrites); }, graph(c, body, type));
}
void becomes(const std::string& c, const std::string& body, const std::string& after, uint32_t rewrites = 0,
             const std::string& type = "f32") {
  Graph g = ir::parse(graph(c, body, type));
  EXPECT_TRUE(arithmetic(g, true, rewrites)) << body;
  ir::verify(g);
  EXPECT_THAT(ir::print(g), testing::HasSubstr(after)) << body;
}

TEST(Arithmetic, Neutral) {
  gone(kOne, "  %y = mul %x, %c\n");
  gone(kOne, "  %y = div %x, %c\n");
  gone(kOne, "  %y = pow %x, %c\n");
  gone(kZero, "  %y = sub %x, %c\n");
  gone(kMinusZero, "  %y = add %x, %c\n");
  gone("003c", "  %y = mul %x, %c\n", "f16");
  gone("00000000", "  %y = add %x, %c\n", "i32");
  gone("01000000", "  %y = floor_div %x, %c\n", "i32");
}

// -0.0 + 0.0 is 0.0, and -0.0 - -0.0 is 0.0.
TEST(Arithmetic, ZerosHaveSigns) {
  kept(kZero, "  %y = add %x, %c\n");
  kept(kMinusZero, "  %y = sub %x, %c\n");
  becomes(kZero, "  %a = relu %x\n  %y = add %a, %c\n", "%a = relu %x\n} returns(out=%a)");
  gone(kZero, "  %y = add %x, %c\n", "f32", kAddZero);
}

TEST(Arithmetic, NaNAndInfinityMultiply) {
  kept(kZero, "  %y = mul %x, %c\n");
  kept(kZero, "  %y = sub %x, %x\n");
  kept(kZero, "  %y = div %x, %x\n");
  becomes(kZero, "  %y = mul %x, %c\n", "%y = fill_like %x", kMulZero);
  becomes(kZero, "  %y = sub %x, %x\n", "%y = fill_like %x", kSubSelf);
  becomes(kZero, "  %y = div %x, %x\n", "%y = fill_like %x {value=1.0}", kDivSelf);
}

TEST(Arithmetic, PowersOfTwoDivideExactly) {
  becomes("00008040", "  %y = div %x, %c\n", "const %c0: f32[] = 0000803e\n  %y = mul %x, %c0");  // 4, 0.25
  kept("00004040", "  %y = div %x, %c\n");                                                        // 3
  kept("0000807e", "  %y = div %x, %c\n");  // 2^126: its reciprocal is near the end of the range
  becomes("00004040", "  %y = div %x, %c\n", "%y = mul %x, ", kDivToMul);
}

TEST(Arithmetic, NegationsSubtract) {
  becomes(kOne, "  %a = neg %z\n  %y = add %x, %a\n", "%y = sub %x, %z");
  becomes(kOne, "  %a = neg %x\n  %y = add %a, %z\n", "%y = sub %z, %x");
  becomes(kOne, "  %a = neg %z\n  %y = sub %x, %a\n", "%y = add %x, %z");
  becomes(kOne, "  %a = neg %x\n  %b = neg %z\n  %y = mul %a, %b\n", "%y = mul %x, %z");
  becomes("000080bf", "  %y = mul %x, %c\n", "%y = neg %x");
  becomes("00000040", "  %y = pow %x, %c\n", "%y = square %x");
}

TEST(Arithmetic, IntegerChainsMergeAndFloatOnesOnRequest) {
  becomes("03000000", "  %a = add %x, %c\n  %y = add %a, %c\n", "%0 = add %c, %c\n  %y = add %x, %0", 0, "i32");
  kept(kOne, "  %a = add %x, %c\n  %y = add %a, %c\n");
  becomes(kOne, "  %a = add %x, %c\n  %y = add %a, %c\n", "%0 = add %c, %c\n  %y = add %x, %0", kMergeConstants);
}

TEST(Arithmetic, Logarithms) {
  const std::string sum = "  %a = exp %x\n  %b = exp %z\n  %s = add %a, %b\n  %y = log %s\n";
  kept(kOne, sum);
  becomes(kOne, sum, "%y = logaddexp %x, %z", kLogSumExp);
  kept(kOne, "  %a = exp %x\n  %y = log %a\n");
  gone(kOne, "  %a = exp %x\n  %y = log %a\n", "f32", kLogExp);
  becomes(kOne, "  %a = exp %x\n  %b = mul %z, %a\n  %y = log %b\n", "%0 = log %z\n  %y = add %x, %0", kLogExp);
  becomes(kOne, "  %a = exp %x\n  %b = div %a, %z\n  %y = log %b\n", "%0 = log %z\n  %y = sub %x, %0", kLogExp);
  becomes(kOne, "  %a = add %x, %c\n  %y = log %a\n", "%y = log1p %x", kLog1p);
  becomes(kOne, "  %a = exp %x\n  %y = sub %a, %c\n", "%y = expm1 %x", kLog1p);
}

TEST(Arithmetic, OtherNamedRewrites) {
  gone(kOne, "  %a = typecvt %x {dtype=float16}\n  %y = typecvt %a {dtype=float32}\n", "f32", kDoubleCast);
  becomes(kOne, "  %a = add %x, %z\n  %y = add %a, %c\n", "%0 = add %c, %x\n  %y = add %0, %z", kReassociate);
}

TEST(Arithmetic, ScalesGoIntoWeightsOnRequest) {
  const std::string text = R"(graph g(%x: f32[1,2,4,4]) {
  const %w: f32[2,2,1,1] = 0000803f0000803f0000803f0000803f
  const %s: f32[1,2,1,1] = 0000004000000040
  %0 = conv2d %x, %w                                loc net.py:1
  %y = mul %0, %s                                   loc net.py:2
} returns(%y)
)";
  expect_unchanged([](Graph& g) { return arithmetic(g); }, text);
  Graph g = ir::parse(text);
  EXPECT_TRUE(arithmetic(g, true, kFoldBatchNorm));
  EXPECT_THAT(ir::print(g), testing::HasSubstr("%1 = mul %w, %0                                   loc net.py:2\n  %y = "
                                               "conv2d %x, %1                                loc net.py:1"));
}

// A constant of the recorded shape may decide the shape of another call.
TEST(Arithmetic, ForAnySizesOnlyNumbersAreNeutral) {
  const std::string wide =
      "graph g(%x: f32[2,3]) {\n  const %c: f32[2,1] = 0000803f0000803f\n  %y = mul %x, %c\n} "
      "returns(%y)\n";
  expect_unchanged([](Graph& g) { return arithmetic(g, false); }, wide);
  Graph g = ir::parse(wide);
  EXPECT_TRUE(arithmetic(g, true));
  Graph h = ir::parse(graph(kOne, "  %y = mul %x, %c\n"));
  EXPECT_TRUE(arithmetic(h, false));
}

}  // namespace
}  // namespace mge::pass
