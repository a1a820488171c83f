#include "pass/move_transposes.h"

#include "pass/pass_test_util.h"
#include "pass/pipeline.h"

namespace mge::pass {
namespace {

TEST(MoveTransposes, GoToTheOperands) {
  expect_rewrite(move_transposes, R"(graph g(%x: f32[4,6], %y: f32[6,4], %b: f32[6]) {
  %0 = relu %x
  %1 = mul %0, %b
  %2 = transpose %1 {perm=[1,0]}
  %3 = add %2, %y
} returns(%3)
)",
                 R"(graph g(%x: f32[4,6], %y: f32[6,4], %b: f32[6]) {
  %0 = transpose %x {perm=[1,0]}
  %1 = relu %0
  %2 = reshape %b {shape=[1,6]}
  %3 = transpose %2 {perm=[1,0]}
  %4 = mul %1, %3
  %5 = add %4, %y
} returns(%5)
)");
}

TEST(MoveTransposes, StayWhereOthersWouldSeeOtherStrides) {
  expect_unchanged(move_transposes, R"(graph product(%x: f32[4,6], %y: f32[4,6]) {
  %0 = relu %x
  %1 = transpose %0 {perm=[1,0]}
  %2 = matmul %1, %y {ta=false, tb=false}
} returns(%2)
)");
  expect_unchanged(move_transposes, R"(graph read_twice(%x: f32[4,6], %y: f32[6,4]) {
  %0 = relu %x
  %1 = transpose %0 {perm=[1,0]}
  %2 = add %1, %y
} returns(%2, %0)
)");
  expect_unchanged(move_transposes, R"(graph result(%x: f32[4,6]) {
  %0 = relu %x
  %1 = transpose %0 {perm=[1,0]}
} returns(%1)
)");
}

TEST(MoveTransposes, OneRegionWhenAskedFor) {
  const char* text = R"(graph g(%x: f32[4,6], %y: f32[6,4]) {
  %0 = exp %x
  %1 = transpose %0 {perm=[1,0]}
  %2 = add %1, %y
  %3 = tanh %2
} returns(%3)
)";
  for (Switch on : {Switch::Unset, Switch::Off, Switch::On}) {
    Graph g = ir::parse(text);
    PipelineOptions o;
    o.can_fuse = [](const OpDef&, const AttrsBase*, std::span<const DType>, DType) { return true; };
    o.graph_opt.jit_fuse_dimshuffle = on;
    optimize(g, o);
    const std::string after = ir::print(g);
    EXPECT_EQ(after.find("t0=exp(i0) t1=add(t0,i1) t2=tanh(t1)") != std::string::npos, on == Switch::On) << after;
  }
}

}  // namespace
}  // namespace mge::pass
