#include "lite/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "models.h"

namespace lite {
namespace {

using test::error_of;
using test::floats;
using testing::ElementsAre;
using testing::HasSubstr;

Layout f32(std::initializer_list<size_t> dims) {
  Layout l;
  for (size_t d : dims) l.shapes[l.ndim++] = d;
  return l;
}
Tensor iota(std::initializer_list<size_t> dims) {
  Tensor t(LITE_CPU, f32(dims));
  test::fill(t, [](size_t i) { return static_cast<float>(i); });
  return t;
}

TEST(LiteLayout, SizesAndEquality) {
  for (auto [t, n] : {std::pair(LITE_FLOAT, 4),
                      {LITE_HALF, 2},
                      {LITE_INT, 4},
                      {LITE_INT16, 2},
                      {LITE_INT8, 1},
                      {LITE_UINT8, 1},
                      {LITE_UINT, 4},
                      {LITE_UINT16, 2},
                      {LITE_INT64, 8},
                      {LITE_FLOAT64, 8},
                      {LITE_BOOL, 1}}) {
    Layout l;
    l.data_type = t;
    EXPECT_EQ(l.get_elem_size(), static_cast<size_t>(n)) << t;
  }
  EXPECT_TRUE(f32({2, 3}) == f32({2, 3}));
  EXPECT_FALSE(f32({2, 3}) == f32({2, 4}));
  EXPECT_FALSE(f32({2}) == f32({2, 1}));
}

TEST(LiteTensor, MemoryIsMadeOnUseAndZeroed) {
  Tensor t(LITE_CPU, f32({2, 2}));
  EXPECT_EQ(t.get_tensor_total_size_in_byte(), 16u);
  EXPECT_THAT(floats(t), ElementsAre(0, 0, 0, 0));
  void* p = t.get_memory_ptr();
  t.set_layout(f32({3}));
  EXPECT_EQ(t.get_memory_ptr(), p);  // smaller: the memory stays
  EXPECT_EQ(Tensor().get_tensor_total_size_in_byte(), 0u);
  EXPECT_THAT(error_of([] { Tensor().get_memory_ptr(); }), HasSubstr("has no layout"));
}

TEST(LiteTensor, ResetUsesTheCallersMemory) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  Tensor t(LITE_CPU, f32({2, 3}));
  t.reset(data, sizeof data);
  EXPECT_EQ(t.get_memory_ptr(), data);
  EXPECT_THAT(error_of([&] { t.reset(data, 8); }),
              HasSubstr("8 bytes of memory cannot hold a tensor float32[2,3] of 24 bytes"));
  EXPECT_THAT(error_of([&] { t.reset(nullptr, 24); }), HasSubstr("null pointer"));
  t.set_layout(f32({100}));  // too small for this: memory of its own, until other memory is given
  EXPECT_NE(t.get_memory_ptr(), data);
  t.reset(data, f32({3, 2}));
  EXPECT_TRUE(t.get_layout() == f32({3, 2}));
  EXPECT_EQ(*static_cast<float*>(t.get_memory_ptr({2, 1})), 6);
  EXPECT_THAT(error_of([&] { t.get_memory_ptr({3, 0}); }), HasSubstr("index 3 of axis 0"));
}

TEST(LiteTensor, Reshape) {
  Tensor t = iota({2, 6});
  t.reshape({3, -1});
  EXPECT_TRUE(t.get_layout() == f32({3, 4}));
  EXPECT_THAT(error_of([&] { t.reshape({5, -1}); }), HasSubstr("cannot reshape float32[3,4] (12 elements)"));
  EXPECT_THAT(error_of([&] { t.reshape({-1, -1}); }), HasSubstr("at most one -1"));
  EXPECT_THAT(error_of([&] { t.reshape({}); }), HasSubstr("1 to 7 dimensions"));
}

TEST(LiteTensor, SliceIsAView) {
  Tensor t = iota({4, 3});
  auto s = t.slice({1, 0}, {4, 3}, {2, 2});
  EXPECT_TRUE(s->get_layout() == f32({2, 2}));
  EXPECT_FALSE(s->is_continue_memory());
  Tensor copy;
  copy.copy_from(*s);
  EXPECT_THAT(floats(copy), ElementsAre(3, 5, 9, 11));
  s->fill_zero();
  EXPECT_THAT(floats(t), ElementsAre(0, 1, 2, 0, 4, 0, 6, 7, 8, 0, 10, 0));
  s->set_layout(s->get_layout());  // nothing new: still the same memory
  s->copy_from(copy);
  EXPECT_EQ(floats(t)[9], 9);
  EXPECT_EQ(t.slice({1}, {5})->get_layout().shapes[0], 3u) << "an end behind the last element is the last one";
  EXPECT_EQ(t.slice({5}, {6})->get_layout(), f32({0, 3}));
  EXPECT_THAT(error_of([&] { t.slice({size_t(-5)}, {6}); }), HasSubstr("[-5:6:1] of axis 0 does not fit float32[4,3]"));
  EXPECT_THAT(error_of([&] { t.slice({0}, {1}, {0}); }), HasSubstr("does not fit"));
  EXPECT_THAT(error_of([&] { s->copy_from(t); }), HasSubstr("a view keeps its layout"));
}

TEST(LiteTensor, SliceTakesWhatPythonTakes) {
  Tensor t = iota({4, 3});
  const auto rows = [&](int64_t from, int64_t to, int64_t by) {
    auto s = t.slice({static_cast<size_t>(from)}, {static_cast<size_t>(to)}, {static_cast<size_t>(by)});
    Tensor copy;
    copy.copy_from(*s);
    return floats(copy);
  };
  EXPECT_THAT(rows(0, -3, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(rows(-1, 4, 1), ElementsAre(9, 10, 11));
  EXPECT_THAT(rows(-1, 0, -2), ElementsAre(9, 10, 11, 3, 4, 5));
  EXPECT_THAT(rows(3, -5, -3), ElementsAre(9, 10, 11, 0, 1, 2));
  auto back = t.slice({size_t(-1)}, {size_t(-5)}, {size_t(-1)});
  EXPECT_FALSE(back->is_continue_memory());
  t.copy_from(*back);  // both are the same memory
  EXPECT_THAT(floats(t), ElementsAre(9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2));
  t.slice({size_t(-2)}, {4})->fill_zero();
  EXPECT_THAT(floats(t), ElementsAre(9, 10, 11, 6, 7, 8, 0, 0, 0, 0, 0, 0));
}

TEST(LiteTensor, ShareAndCopy) {
  Tensor a = iota({2, 2}), b, c;
  b.share_memory_with(a);
  c.copy_from(a);
  *static_cast<float*>(a.get_memory_ptr()) = 42;
  EXPECT_EQ(floats(b)[0], 42);
  EXPECT_EQ(floats(c)[0], 0);
}

TEST(LiteTensor, Concat) {
  Tensor a = iota({2, 2}), b = iota({2, 1});
  auto c = TensorUtils::concat({a, b}, 1);
  EXPECT_TRUE(c->get_layout() == f32({2, 3}));
  EXPECT_THAT(floats(*c), ElementsAre(0, 1, 0, 2, 3, 1));
  EXPECT_THAT(error_of([&] { TensorUtils::concat({a, b}, 0); }), HasSubstr("float32[2,1] does not fit float32[2,2]"));
  EXPECT_THAT(error_of([&] { TensorUtils::concat({a}, 2); }), HasSubstr("along axis 2"));
  EXPECT_THAT(error_of([] { TensorUtils::concat({}, 0); }), HasSubstr("at least one"));
}

TEST(LiteTensor, WhatMakesNoSense) {
  Layout huge = f32({size_t{1} << 40, size_t{1} << 40});
  EXPECT_THAT(error_of([&] { Tensor t(LITE_CPU, huge); }), HasSubstr("too large"));
  Layout deep;
  deep.ndim = 8;
  EXPECT_THAT(error_of([&] { Tensor t(LITE_CPU, deep); }), HasSubstr("at most 7 dimensions"));
  Layout odd = f32({1});
  odd.data_type = static_cast<LiteDataType>(55);
  EXPECT_THAT(error_of([&] { Tensor t(LITE_CPU, odd); }), HasSubstr("55 is no LiteDataType"));
  EXPECT_THAT(error_of([] { Tensor t(LITE_CUDA); }), HasSubstr("this library runs on the CPU"));
}

TEST(LiteAny, HoldsOneType) {
  LiteAny a(int32_t{3});
  EXPECT_EQ(a.safe_cast<int32_t>(), 3);
  EXPECT_TRUE(a.try_cast<int32_t>());
  EXPECT_FALSE(a.try_cast<float>());
  EXPECT_EQ(a.type(), LiteAny::INT32);
  EXPECT_THROW(a.safe_cast<std::string>(), Error);
  EXPECT_EQ(LiteAny("x").safe_cast<std::string>(), "x");
  EXPECT_EQ(LiteAny().type(), LiteAny::NONE_SUPPORT);
  LiteAny copy = a;
  *static_cast<int32_t*>(a.cast_void_ptr()) = 4;
  EXPECT_EQ(copy.safe_cast<int32_t>(), 3);
  copy = LiteAny(static_cast<void*>(&a));
  EXPECT_EQ(copy.safe_cast<void*>(), &a);
  EXPECT_EQ(LiteAny(1.5f).safe_cast<float>(), 1.5f);
  EXPECT_TRUE(LiteAny(true).try_cast<bool>());
}

}  // namespace
}  // namespace lite
