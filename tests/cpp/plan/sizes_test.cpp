#include "plan/sizes.h"

#include <gmock/gmock.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace mge {
namespace {

size_t parts(const char* text) {
  Stages s = split(ir::parse(text));
  for (auto& p : s.parts) ir::verify(p.graph);
  return s.parts.size();
}

TEST(Split, SizesOfInputsNeedNoParts) {
  EXPECT_EQ(parts(R"(graph g(%x: f32[4,3]) {
  %s = shape_of %x
  %n = slice %s {axes=[0], starts=[0], stops=[1], steps=[1]}
  %y = reshape %x {shape=[4,3]} sizes(shape[0]=%n)
} returns(%y))"),
            1u);
}

TEST(Split, ANumberThatIsAnInputIsReadFirst) {
  Stages s = split(ir::parse(R"(graph g(%x: f32[4], %n: i32[]) {
  %y = slice %x {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%n)
} returns(%y))"));
  ASSERT_EQ(s.parts.size(), 1u);
  EXPECT_THAT(s.parts[0].host, ::testing::ElementsAre(false, true));
}

TEST(Split, WhatACountDecidesIsAnotherPart) {
  const char* text = R"(graph g(%x: f32[4]) {
  %i, %n = nonzero %x
  %k = slice %i {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%n)
  %y = take %x, %k
  %j, %m = nonzero %y
  %l = slice %j {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%m)
  %a = neg %x
} returns(%l, %a))";
  Stages s = split(ir::parse(text));
  ASSERT_EQ(s.parts.size(), 3u);
  for (auto& p : s.parts) ir::verify(p.graph);
  // The first has all that waits for nothing.
  EXPECT_THAT(ir::print(s.parts[0].graph), ::testing::HasSubstr("neg"));
  EXPECT_EQ(s.outputs.size(), 2u);
  EXPECT_EQ(s.commits.size(), 0u);
}

TEST(Split, StateIsReadAndAssignedThroughSlots) {
  Stages s = split(ir::parse(R"(graph g(%x: f32[4]) vars(%w: f32[], %n: i32[]) {
  %a = slice %x {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%n)
  %b = reduce %a
  %c = add %b, %w
} returns(%a) commits(%w <- %c))"));
  ASSERT_EQ(s.parts.size(), 2u);
  EXPECT_EQ(s.commits.size(), 2u);
  EXPECT_GE(s.commits[0], 0);
  EXPECT_EQ(s.commits[1], -1);
}

TEST(SizedGraph, ProgramsAreKeptAndTheOldestGo) {
  int compiled = 0;
  SizedGraph g(ir::parse(R"(graph g(%x: f32[4,3]) {
  %s = shape_of %x
  %y = neg %x
  guard %s = 0400000003000000
} returns(%y))"),
               [&](ir::Graph bound) {
                 ++compiled;
                 return Program::compile(bound);
               });
  Meta m;
  m.shape = Shape{4, 3};
  EXPECT_TRUE(g.accepts({&m, 1}));
  EXPECT_EQ(compiled, 0);
  RefPtr<Program> p = g.program({&m, 1});
  EXPECT_EQ(g.program({&m, 1}), p);
  EXPECT_EQ(compiled, 1);
  m.shape = Shape{5, 3};
  EXPECT_FALSE(g.accepts({&m, 1}));
  EXPECT_THROW(g.program({&m, 1}), Error);
  EXPECT_THROW(g.program({&m, 1}), Error);

  SizedGraph any(ir::parse("graph g(%x: f32[4]) {\n %y = neg %x\n} returns(%y)"),
                 [](ir::Graph bound) { return Program::compile(bound); });
  for (int64_t n = 1; n <= 40; ++n) {
    m.shape = Shape{n};
    EXPECT_EQ(any.program({&m, 1})->output_meta(0).shape, Shape{n});
  }
  EXPECT_EQ(any.n_programs(), SizedGraph::kMaxPrograms);
}

}  // namespace
}  // namespace mge
