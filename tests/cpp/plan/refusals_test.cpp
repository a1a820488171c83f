// What may refuse a value, and what becomes of state when it does.
#include "plan/refusals.h"

#include "plan/plan_test_util.h"

namespace mge {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Buffer ints(std::initializer_list<int32_t> v) {
  Meta m;
  m.dtype = DType::I32;
  m.shape = Shape{static_cast<int64_t>(v.size())};
  Buffer b = allocate_buffer(m);
  std::copy(v.begin(), v.end(), static_cast<int32_t*>(b.storage->ptr));
  return b;
}

std::string run(Program& p, Buffer x, Buffer index, std::vector<Buffer> vars) {
  p.bind_input(0, std::move(x));
  p.bind_input(1, std::move(index));
  for (size_t i = 0; i < vars.size(); ++i) p.bind_var(i, std::move(vars[i]));
  return error_of([&] { p.run(); }, ErrorKind::Index);
}

TEST(Refusals, AreSaidInTheTableOfOps) {
  std::vector<std::string> ops;
  const OpRegistry& all = OpRegistry::global();
  for (size_t i = 0; i < all.size(); ++i)
    if (all.at(static_cast<OpId>(i)).refuses) ops.push_back(all.at(static_cast<OpId>(i)).name);
  // Each has a row in tests/python/test_error_lines.py, or is the gradient of one that has.
  EXPECT_THAT(ops, testing::UnorderedElementsAre(
                       "indexing_one_hot", "set_one_hot", "take", "take_bwd", "wrap_index", "check_range", "index_get",
                       "index_get_last", "index_set", "index_incr", "gather", "gather_bwd", "roi_align",
                       "roi_align_bwd", "roi_pooling", "roi_pooling_bwd", "ctc_loss", "ctc_loss_bwd", "softmax_xent",
                       "softmax_xent_bwd", "matinv", "custom", "rng_multinomial"));
}

// The update of %w needs no index, and the order it was written in has it first.
constexpr const char* kUpdateFirst = R"(
graph step(%x: f32[4], %i: i32[2]) vars(%w: f32[4], %n: f32[2]) {
  %w1 = add %w, %x
  %y = take %x, %i {axis=0}
  %n1 = add %n, %y
} returns(%y) commits(%w <- %w1, %n <- %n1)
)";

TEST(Refusals, ComeBeforeTheFirstUpdate) {
  ir::Graph g = ir::parse(kUpdateFirst);
  for (bool reorder : {true, false}) {
    auto p = Program::compile(g, {.reorder = reorder});
    // In the order as written %w must not be written over: it gets other memory.
    EXPECT_EQ(p->report().donated_vars, reorder ? 2 : 1) << p->dump();
    EXPECT_THAT(run(*p, floats({1, 2, 3, 4}), ints({0, 9}), {floats({5, 5, 5, 5}), floats({0, 0})}),
                AllOf(HasSubstr("index 9"), Not(HasSubstr("were assigned"))));
    EXPECT_THAT(var(*p, 0), ElementsAre(5, 5, 5, 5));
    EXPECT_THAT(var(*p, 1), ElementsAre(0, 0));
    p->release_buffers();
    EXPECT_EQ(run(*p, floats({1, 2, 3, 4}), ints({0, 3}), {floats({5, 5, 5, 5}), floats({0, 0})}), "no error");
    EXPECT_THAT(var(*p, 0), ElementsAre(6, 7, 8, 9));
    EXPECT_THAT(var(*p, 1), ElementsAre(1, 4));
  }
}

TEST(Refusals, StateThatTheyDependOnIsNotWrittenOver) {
  auto p = Program::compile(ir::parse(R"(
graph step(%x: f32[4], %i: i32[2]) vars(%w: f32[4]) {
  %w1 = add %w, %x
  %y = take %w1, %i {axis=0}
} returns(%y) commits(%w <- %w1)
)"));
  EXPECT_EQ(p->report().donated_vars, 0);
  run(*p, floats({1, 2, 3, 4}), ints({0, 9}), {floats({5, 5, 5, 5})});
  EXPECT_THAT(var(*p, 0), ElementsAre(5, 5, 5, 5));
}

TEST(Refusals, AnAssignmentByIndexIsInPlaceAndWhole) {
  auto p = Program::compile(ir::parse(R"(
graph step(%v: f32[2], %i: i32[2]) vars(%w: f32[4]) {
  %w1 = index_set %w, %v, %i {axes=[0]}
} returns() commits(%w <- %w1)
)"));
  EXPECT_EQ(p->report().donated_vars, 1);
  run(*p, floats({1, 2}), ints({0, 9}), {floats({5, 5, 5, 5})});
  EXPECT_THAT(var(*p, 0), ElementsAre(5, 5, 5, 5));
}

TEST(Refusals, AGradientOfTheSameLineHasBeenLookedAt) {
  const char* text = R"(
graph step(%x: f32[4,2], %i: i32[2]) vars(%w: f32[4,2]) {
  %y = take %x, %i {axis=0}                        loc a.py:3 in step
  %g = take_bwd %y, %i {axis=0, x_shape=[4,2]}     loc a.py:LINE in step (backward)
  %w1 = sub %w, %g                                 loc a.py:9 in step
} returns(%y) commits(%w <- %w1)
)";
  for (const char* line : {"3", "5"}) {
    std::string s = text;
    s.replace(s.find("LINE"), 4, line);
    ir::Graph g = ir::parse(s);
    EXPECT_EQ(Refusals(g).all().size(), line[0] == '3' ? 1u : 2u);
  }
}

}  // namespace
}  // namespace mge
