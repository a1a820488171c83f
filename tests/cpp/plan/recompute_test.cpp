#include "plan/recompute.h"

#include "core/pool.h"
#include "ir/verify.h"
#include "plan/plan_test_util.h"

namespace mge {
namespace {

using testing::HasSubstr;

// Two values wait for the end while a large one is there that is made of them.
ir::Graph wide() {
  return ir::parse(R"(
graph wide(%x: f32[1000], %w: f32[1000]) {
  %a = exp %x
  %b = tanh %w
  %c = mul %a, %b
  %big = broadcast_to %c {shape=[8,1000]}
  %huge = neg %big
  %sum = reduce %huge {mode="sum", axes=[0]}
  %d = mul %sum, %a
  %e = mul %d, %b
} returns(%e)
)");
}

TEST(Recompute, CheapOpsAreMadeAgainAfterThePeak) {
  ir::Graph g = wide();
  const size_t nodes = g.n_nodes();
  const auto again = recompute_for_memory(g, 0);
  ir::verify(g);
  EXPECT_GE(again.size(), 2u);
  EXPECT_EQ(g.n_nodes(), nodes + again.size());
  for (ir::NodeId n : again) EXPECT_TRUE(g.node(n).op->is(kElementwise));
}

TEST(Recompute, NothingHappensBelowTheTarget) {
  ir::Graph g = wide();
  EXPECT_TRUE(recompute_for_memory(g, 1 << 20).empty());
  EXPECT_EQ(ir::print(g), ir::print(wide()));
}

TEST(Recompute, TheReportSaysWhatWasComputedAgain) {
  auto once = Program::compile(wide()), twice = Program::compile(wide(), {.recompute_to = 0});
  EXPECT_EQ(once->report().recomputed, 0);
  EXPECT_LT(twice->report().arena_bytes, once->report().arena_bytes);
  EXPECT_GE(twice->report().recomputed, 2);
  EXPECT_THAT(twice->report().str(), HasSubstr("computed again to save memory"));
  EXPECT_THAT(twice->dump(), HasSubstr("# computed again"));
}

TEST(Recompute, ARunThatDoesNotGetItsMemoryTriesIt) {
  auto p = Program::compile(wide());
  const size_t once = p->report().arena_bytes,
               less = Program::compile(wide(), {.recompute_to = 0})->report().arena_bytes;
  Buffer x = random_buffer(p->input_meta(0), 1), w = random_buffer(p->input_meta(1), 2);
  auto run = [&] {
    p->bind_input(0, x);
    p->bind_input(1, w);
    p->run();
    auto y = out(*p, 0);
    p->release_buffers();
    return y;
  };
  const auto want = run();
  Pool& pool = Pool::of({});
  struct Lift {
    Pool& pool;
    ~Lift() { pool.set_limit(0); }
  } lift{pool};
  pool.set_limit(pool.stats().allocated + (once + less) / 2 + 4096);
  EXPECT_EQ(run(), want);
  EXPECT_LT(p->report().arena_bytes, once);
  EXPECT_GE(p->report().recomputed, 1) << "as many as are needed";
  pool.set_limit(pool.stats().allocated + 4096);
  p->bind_input(0, x);
  p->bind_input(1, w);
  EXPECT_THAT(error_of([&] { p->run(); }, ErrorKind::Memory), HasSubstr("memory limit"));
  p->release_buffers();
  pool.set_limit(0);
  EXPECT_EQ(run(), want);
  EXPECT_EQ(p->report().arena_bytes, once) << "back to the faster one";
}

}  // namespace
}  // namespace mge
