#include "pass/constant_fold.h"

#include <cmath>

#include "pass/pass_test_util.h"

namespace mge::pass {
namespace {

// Float adds and negations are all these tests need; everything else fails like an op without a kernel.
void toy(const OpDef& op, const AttrsBase*, std::span<const ir::ConstTensor> in, std::span<ir::ConstTensor> out) {
  auto at = [&](size_t i, int64_t k) {
    auto* p = reinterpret_cast<const float*>(static_cast<const char*>(in[i].storage->ptr) + in[i].offset);
    return p[in[i].meta.shape.numel() == 1 ? 0 : k];
  };
  MGE_CHECK(op.name == "add" || op.name == "neg", NotImplemented, "toy: no {}", op.name);
  out[0].storage = allocate_storage({}, out[0].meta.bytes());
  for (int64_t k = 0; k < out[0].meta.shape.numel(); ++k)
    static_cast<float*>(out[0].storage->ptr)[k] = op.name == "neg" ? -at(0, k) : at(0, k) + at(1, k);
}
bool fold(Graph& g) { return constant_fold(g, toy); }

TEST(ConstantFold, ChainsCollapse) {
  expect_rewrite(fold, R"(graph g(%x: f32[2]) {
  const %c0: f32[2] = 0000803f00000040
  const %c1: f32[] = 0000803f
  %0 = add %c0, %c1
  %bias = neg %0
  %1 = add %x, %bias
} returns(%1)
)",
                 R"(graph g(%x: f32[2]) {
  const %c0: f32[2] = 0000803f00000040
  const %c1: f32[] = 0000803f
  const %c2: f32[2] = 0000004000004040
  const %bias: f32[2] = 000000c0000040c0
  %0 = add %x, %bias
} returns(%0)
)");
}

TEST(ConstantFold, LeavesWhatCannotBeEvaluated) {
  expect_unchanged(fold, R"(graph g(%x: f32[2]) {
  const %c0: f32[2] = 0000803f00000040
  %0 = exp %c0
  %1 = add %x, %0
} returns(%1)
)");
}

TEST(ConstantFold, LeavesBroadcastsThatWouldGrow) {
  expect_unchanged([](Graph& g) { return constant_fold(g, [](auto&&...) { FAIL(); }); }, R"(graph g() {
  const %c0: f32[] = 0000803f
  %0 = broadcast_to %c0 {shape=[100,100]}
} returns(%0)
)");
}

TEST(ConstantFold, LeavesConstantsWithoutData) {
  expect_unchanged(fold, "graph g() {\n  const %c0: f32[2]\n  %0 = neg %c0\n} returns(%0)\n");
}

// In a graph for any sizes the attribute is that of one call.
TEST(ConstantFold, LeavesWhatASizeDecides) {
  expect_unchanged([](Graph& g) { return constant_fold(g, [](auto&&...) { FAIL(); }); }, R"(graph g(%x: f32[2]) {
  const %c0: f32[] = 0000803f
  %0 = shape_of %x
  %1 = broadcast_to %c0 {shape=[2]} sizes(shape=%0)
  %2 = broadcast_to %c0 {shape=[2]} sizes(shape=%0)
  %3 = add %1, %2
} returns(%3)
)");
}

}  // namespace
}  // namespace mge::pass
