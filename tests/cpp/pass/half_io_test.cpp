#include "pass/half_io.h"

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

bool f16(Graph& g) { return half_io(g, DType::F16); }

TEST(HalfIo, OutputsKeepTheirTypes) {
  Graph g = ir::parse(R"(graph g(%x: f32[1,2,4,4]) {
  const %w: f32[2,2,1,1] = 0000803f0000803f0000803f0000803f
  %0 = conv2d %x, %w                                loc net.py:1
  %1 = relu %0                                      loc net.py:2
  %2 = argmax %1 {axis=1}                           loc net.py:3
} returns(%1, %2)
)");
  EXPECT_TRUE(f16(g));
  ir::verify(g);
  const std::string text = ir::print(g, {.types = true});
  EXPECT_THAT(text, testing::HasSubstr("conv2d %"));
  EXPECT_THAT(text, testing::ContainsRegex("conv2d .* : f16.1,2,4,4. *loc net.py:1"));
  EXPECT_THAT(text, testing::ContainsRegex("relu .* : f16.1,2,4,4. *loc net.py:2"));
  EXPECT_EQ(g.meta(g.outputs()[0].value).dtype, DType::F32);
  EXPECT_EQ(g.meta(g.outputs()[1].value).dtype, DType::I32);
}

TEST(HalfIo, AgainItChangesNothing) {
  Graph g = ir::parse(R"(graph g(%x: f32[2,3], %n: i32[2,3]) {
  %0 = typecvt %n
  %1 = add %x, %0
  %2 = reduce %1 {mode="mean", axes=[1]}
  %3 = exp %2
} returns(%3)
)");
  EXPECT_TRUE(f16(g));
  const std::string once = ir::print(g);
  EXPECT_FALSE(f16(g)) << once << ir::print(g);
  EXPECT_EQ(ir::print(g), once);
}

// 1e9 would be infinite, 1e-6 zero.
TEST(HalfIo, ConstantsThatWouldBeLostKeepTheirOpIn32Bits) {
  for (const char* c : {"286b6e4e", "bd378635"}) {
    Graph g = ir::parse("graph g(%x: f32[2]) {\n  const %c: f32[] = " + std::string(c) +
                        "\n  %0 = exp %x\n  %1 = add %0, %c\n  %2 = exp %1\n} returns(%2)\n");
    EXPECT_TRUE(f16(g));
    EXPECT_THAT(ir::print(g, {.types = true}), testing::ContainsRegex("add %[0-9]+, %c : f32.2.\n"));
  }
}

TEST(HalfIo, PositionsStayAccurate) {
  Graph g = ir::parse(R"(graph g(%x: f32[1,2,8,8], %boxes: f32[3,5]) {
  %0 = roi_align %x, %boxes {size=[2,2]}
} returns(%0)
)");
  EXPECT_FALSE(f16(g));
}

}  // namespace
}  // namespace mge::pass
