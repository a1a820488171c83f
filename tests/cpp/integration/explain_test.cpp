// What errors say of nodes that passes made, and after a file.
#include "ir/explain.h"

#include <gmock/gmock.h>

#include "ir/text.h"
#include "pass/pipeline.h"
#include "serial/model.h"

namespace mge {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Explain, ARewrittenOpIsTheOneThatWasWritten) {
  ir::Graph g = ir::parse(R"(
graph f(%x: f32[4,3], %i: i32[2]) {
  const %two: f32[] = 00000040
  %a = div %x, %two              loc a.py:2 in f
  %b = neg %a                    loc a.py:3 in f
  %c = take %b, %i {axis=0}      loc a.py:4 in f
  %d = exp %c                    loc a.py:5 in f
} returns(%d)
)");
  pass::PipelineOptions o;
  o.can_fuse = [](const OpDef&, const AttrsBase*, std::span<const DType>, DType) { return true; };
  pass::optimize(g, o);
  const ir::Told t = ir::tell(g, g.first());
  EXPECT_THAT(t.call, AllOf(HasSubstr("div(x: float32[4,3]"), HasSubstr("neg(a: float32[4,3]")));
  EXPECT_THAT(t.where, AllOf(HasSubstr("a.py:2 in f"), HasSubstr("a.py:3 in f"), Not(HasSubstr("a.py:4"))));
}

TEST(Explain, AFileKeepsItUnlessItIsStripped) {
  ir::Graph g = ir::parse(R"(
graph f(%x: f32[4], %i: i32[2]) {
  %c = take %x, %i {axis=0}      loc a.py:4 in f
} returns(%c)
)");
  g.add_origin(g.first(), {"embedding", "embedding(x: float32[4])", g.loc("a.py", 7, "net")});
  for (bool lines : {true, false}) {
    auto bytes = serial::write_model(g, {}, {.locations = lines});
    ir::Graph back = serial::read_model(bytes, "test").graph;
    const ir::Told t = ir::tell(back, back.first());
    EXPECT_EQ(t.op, "embedding");
    EXPECT_EQ(t.call, "embedding(x: float32[4])");
    if (lines)
      EXPECT_EQ(t.where, "a.py:7 in net");
    else
      EXPECT_THAT(t.where, HasSubstr("stripped from the file"));
    EXPECT_EQ(back.is_stripped(), !lines);
  }
}

}  // namespace
}  // namespace mge
