#include "ir/bind.h"

#include <gmock/gmock.h>

#include <cstring>

#include "ir/text.h"
#include "ir/verify.h"

namespace mge::ir {
namespace {

using ::testing::HasSubstr;

// Sums and slices of int32 are all these graphs compute sizes with.
void toy(const OpDef& op, const AttrsBase* attrs, std::span<const ConstTensor> in, std::span<ConstTensor> out) {
  auto at = [&](size_t i, int64_t k) {
    int32_t v;
    std::memcpy(&v, static_cast<const char*>(in[i].storage->ptr) + in[i].offset + k * 4, 4);
    return v;
  };
  out[0].storage = allocate_storage({}, std::max<size_t>(out[0].meta.bytes(), 4));
  auto* p = static_cast<int32_t*>(out[0].storage->ptr);
  if (op.name == "slice") {
    int64_t start = 0;
    for (auto& a : attrs->values())
      if (a.name == "starts") start = std::get<Ints>(a.value)[0];
    for (int64_t k = 0; k < out[0].meta.shape.numel(); ++k) p[k] = at(0, start + k);
  } else {
    ASSERT_EQ(op.name, "add");
    for (int64_t k = 0; k < out[0].meta.shape.numel(); ++k) p[k] = at(0, k) + at(1, k);
  }
}

Meta f32(Shape s) {
  Meta m;
  m.shape = s;
  return m;
}

constexpr const char* kFlat = R"(graph g(%x: f32[4,2,3]) {
  %0 = shape_of %x
  %1 = slice %0 {axes=[0], starts=[0], stops=[1], steps=[1]}
  %2 = reshape %x {shape=[4,6]} sizes(shape[0]=%1)
  guard %1 = 04000000  loc f.py:7
} returns(%2)
)";

TEST(Bind, TextKeepsSizesAndGuards) {
  Graph g = parse(kFlat);
  EXPECT_EQ(print(g), kFlat);
  EXPECT_TRUE(g.is_sized());
  EXPECT_EQ(print(g.clone()), kFlat);
  EXPECT_EQ(g.use_count(g.guards()[0].value), 2u);
}

TEST(Bind, PutsNumbersIntoAttributes) {
  std::string text = kFlat;
  text.erase(text.find("  guard"), text.find("} returns") - text.find("  guard"));
  for (int64_t n : {1, 4, 9, 0}) {
    Graph g = parse(text);
    Meta m = f32({n, 2, 3});
    bind(g, {&m, 1}, {}, toy);
    verify(g);
    EXPECT_FALSE(g.is_sized());
    EXPECT_EQ(g.meta(g.outputs()[0].value).shape, (Shape{n, 6}));
  }
}

TEST(Bind, AGuardHoldsForTheNumbersItWasMadeWith) {
  Graph g = parse(kFlat);
  Meta m = f32({4, 2, 3});
  bind(g, {&m, 1}, {}, toy);
  EXPECT_TRUE(g.guards().empty());
  Graph other = parse(kFlat);
  m.shape = Shape{5, 2, 3};
  try {
    bind(other, {&m, 1}, {}, toy);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("read a size as a number"));
    EXPECT_THAT(e.what(), HasSubstr("f.py:7"));
  }
}

TEST(Bind, WhatKeepsEverySizeIsDropped) {
  Graph g = parse(R"(graph g(%x: f32[1,3], %y: f32[4,3]) {
  %0 = shape_of %x
  %1 = add %x, %y
  %2 = sum_to %1 {shape=[1,3]} sizes(shape=%0)
  %3 = neg %2
} returns(%3)
)");
  Graph same = g.clone();
  Meta both[] = {f32({4, 3}), f32({4, 3})};
  bind(same, both, {}, toy);
  verify(same);
  EXPECT_EQ(same.n_nodes(), 2u) << print(same);
  Meta wide[] = {f32({1, 3}), f32({5, 3})};
  bind(g, wide, {}, toy);
  verify(g);
  EXPECT_THAT(print(g), HasSubstr("reduce"));
  EXPECT_EQ(g.meta(g.outputs()[0].value).shape, (Shape{1, 3}));
}

TEST(Bind, NumbersThatAreNotKnownAreRefused) {
  Graph g = parse(R"(graph g(%x: f32[4], %n: i32[1]) {
  %0 = slice %x {axes=[0], starts=[0], stops=[2], steps=[1], python=true} sizes(stops[0]=%n)   loc f.py:2
} returns(%0)
)");
  Meta metas[] = {f32({4}), g.meta(g.inputs()[1])};
  Graph blind = g.clone();
  EXPECT_THROW(bind(blind, metas, {}, toy), Error);
  int32_t three = 3;
  auto s = allocate_storage({}, 4);
  std::memcpy(s->ptr, &three, 4);
  KnownInput n{1, {metas[1], s, 0}};
  bind(g, metas, {&n, 1}, toy);
  EXPECT_EQ(g.meta(g.outputs()[0].value).shape, Shape{3});
}

TEST(Bind, ErrorsOfInferenceNameTheLine) {
  Graph g = parse("graph g(%x: f32[4,2]) {\n  %0 = reshape %x {shape=[2,4]}   loc f.py:3\n} returns(%0)\n");
  Meta m = f32({5, 2});
  try {
    bind(g, {&m, 1}, {}, toy);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("f.py:3"));
  }
}

}  // namespace
}  // namespace mge::ir
