#include "plan/schedule.h"

#include "ir/verify.h"
#include "plan/plan_test_util.h"

namespace mge {
namespace {

std::vector<std::string> ops(const ir::Graph& g) {
  std::vector<std::string> out;
  for (ir::NodeId n : g.order()) out.push_back(g.node(n).op->name);
  return out;
}

TEST(Schedule, AnUpdateComesAsSoonAsItsGradientIsThere) {
  ir::Graph g = ir::parse(R"(
graph step(%x: f32[1000], %y: f32[1000]) vars(%a: f32[1000], %b: f32[1000]) {
  %ga = mul %x, %y
  %gb = add %x, %y
  %c = mul %ga, %gb
  %d = reduce %c {mode="sum", axes=[0]}
  %a1 = sub %a, %ga
  %b1 = sub %b, %gb
} returns(%d) commits(%a <- %a1, %b <- %b1)
)");
  const ScheduleReport r = schedule_for_memory(g);
  ir::verify(g);
  EXPECT_EQ(r.before, 3 * 4032u);
  EXPECT_EQ(r.after, 2 * 4032u);  // mul takes the place of one of them
  EXPECT_TRUE(r.changed);
}

TEST(Schedule, GradientsDoNotPileUp) {
  ir::Graph g("step");
  Meta m;
  m.shape = Shape{1024};
  ir::ValueId x = g.add_input("x", m);
  std::vector<ir::ValueId> grads;
  for (int i = 0; i < 8; ++i) {
    g.add_var(format("w{}", i), m);
    x = g.add1("tanh", nullptr, {x});
    grads.push_back(g.add1("neg", nullptr, {x}));
  }
  for (size_t i = 0; i < grads.size(); ++i) g.commit(i, g.add1("sub", nullptr, {g.vars()[i].in, grads[i]}));
  g.add_output("x", x);
  const ScheduleReport r = schedule_for_memory(g);
  EXPECT_EQ(r.before, 8 * 4096u);  // the gradients; what the chain ends in is an output
  EXPECT_EQ(r.after, 2 * 4096u);
  auto p = Program::compile(g);
  EXPECT_EQ(p->report().donated_vars, 8);
  EXPECT_EQ(p->report().arena_bytes, 2 * 4096u);
  EXPECT_EQ(Program::compile(g, {.reorder = false})->report().arena_bytes, 2 * 4096u) << "it came in that order";
}

TEST(Schedule, WhatIsNotNeededYetWaits) {
  ir::Graph g = ir::parse(R"(
graph wait(%x: f32[8], %y: f32[1000]) {
  %wide = broadcast_to %x {shape=[100,8]}
  %big = exp %wide
  %a = tanh %y
  %b = exp %a
  %c = reduce %b {mode="sum", axes=[0]}
  %e = mul %big, %c
  %d = reduce %e {mode="sum", axes=[0]}
} returns(%d)
)");
  const ScheduleReport r = schedule_for_memory(g);
  ir::verify(g);
  EXPECT_LT(r.after, r.before);
  EXPECT_THAT(ops(g), testing::ElementsAre("broadcast_to", "tanh", "exp", "reduce", "exp", "mul", "reduce"));
}

TEST(Schedule, ReadersOfAVarStayBeforeItsUpdate) {
  ir::Graph g = ir::parse(R"(
graph step(%x: f32[1000]) vars(%w: f32[1000]) {
  %g = mul %x, %x
  %y = mul %w, %x
  %z = tanh %y
  %s = reduce %z {mode="sum", axes=[0]}
  %w1 = sub %w, %g
} returns(%s) commits(%w <- %w1)
)");
  schedule_for_memory(g);
  ir::verify(g);
  EXPECT_EQ(Program::compile(g)->report().donated_vars, 1);
}

TEST(Schedule, AnOrderOfEqualNeedIsLeftAlone) {
  const char* text = R"(
graph same(%x: f32[100]) {
  %a = exp %x
  %b = tanh %x
  %c = add %a, %b
} returns(%c)
)";
  ir::Graph g = ir::parse(text);
  EXPECT_FALSE(schedule_for_memory(g).changed);
  EXPECT_EQ(ir::print(g), ir::print(ir::parse(text)));
}

TEST(Schedule, RandomNumbersKeepTheirOrder) {
  ir::Graph g = ir::parse(R"(
graph draw(%x: f32[1000]) vars(%s: i32[4]) {
  %a, %s1 = rng_uniform %s {shape=[1000]}
  %b, %s2 = rng_uniform %s1 {shape=[8]}
  %c = add %x, %x
  %d = mul %c, %a
  %e = reduce %d {mode="sum", axes=[0]}
} returns(%e, %b) commits(%s <- %s2)
)");
  schedule_for_memory(g);
  ir::verify(g);
}

}  // namespace
}  // namespace mge
