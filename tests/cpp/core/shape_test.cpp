#include "core/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace mge {
namespace {

void expect_error(const std::function<void()>& f, ErrorKind kind, const std::string& text) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    EXPECT_EQ(e.text(), text);
  }
}

TEST(ShapeTest, ScalarsAreRankZero) {
  Shape s;
  EXPECT_EQ(s.rank, 0);
  EXPECT_EQ(s.numel(), 1);
  EXPECT_EQ(s.str(), "[]");
  EXPECT_TRUE(s == Shape{});
  EXPECT_FALSE(s == Shape{1});
  EXPECT_NE(s.hash(0), Shape{1}.hash(0));
  EXPECT_TRUE(Layout::contiguous(s).is_contiguous(s));
  EXPECT_FALSE(Layout::contiguous(s).overlaps(s));
}

TEST(ShapeTest, ZeroSizesAreOrdinary) {
  Shape s{3, 0, 5};
  EXPECT_EQ(s.numel(), 0);
  EXPECT_EQ(s.str(), "[3,0,5]");
  check_shape("x", s);
  EXPECT_TRUE(Layout::contiguous(s).is_contiguous(s));
  Layout odd;
  odd.stride[0] = 7, odd.stride[1] = -3, odd.stride[2] = 0;
  EXPECT_TRUE(odd.is_contiguous(s)) << "nothing to lay out";
}

TEST(ShapeTest, EditsKeepOrder) {
  Shape s{2, 3};
  s.push_back(4);
  s.insert(0, 9);
  s.insert(2, 8);
  s.insert(5, 7);
  EXPECT_EQ(s.str(), "[9,2,8,3,4,7]");
  s.erase(0);
  s.erase(4);
  s.erase(1);
  EXPECT_EQ(s.str(), "[2,3,4]");
  EXPECT_EQ(s.back(), 4);
  EXPECT_EQ(Shape::filled(3, 5).str(), "[5,5,5]");
  EXPECT_EQ(Shape::filled(0, 5).str(), "[]");
}

TEST(ShapeTest, AtMostEightDimensions) {
  Shape full = Shape::filled(8, 1);
  expect_error([&] { full.push_back(1); }, ErrorKind::Value,
               "shape: at most 8 dimensions are supported; got [1,1,1,1,1,1,1,1] and one more.");
  expect_error([&] { full.insert(3, 1); }, ErrorKind::Value,
               "shape: at most 8 dimensions are supported; got [1,1,1,1,1,1,1,1] and one more.");
  expect_error([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }, ErrorKind::Value,
               "shape: at most 8 dimensions are supported; got 9.");
}

TEST(ShapeTest, SizeOverflowIsAnError) {
  constexpr int64_t kMost = PTRDIFF_MAX / 16;  // so that bytes can be counted in a size_t, also one of 32 bits
  check_shape("full", {kMost});
  check_shape("full", {(kMost + 1) / 2, 1, 1});
  expect_error([] { check_shape("full", {kMost + 1}); }, ErrorKind::Value,
               format("full: the size of shape [{}] overflows.", kMost + 1));
  expect_error(
      [] {
        check_shape("full", {int64_t{1} << 32, int64_t{1} << 32});
      },
      ErrorKind::Value, "full: the size of shape [4294967296,4294967296] overflows.");
  // The product wraps to 0 in 64 bits; it must not pass for an empty tensor.
  expect_error(
      [] {
        check_shape("full", {int64_t{1} << 32, int64_t{1} << 32, 4});
      },
      ErrorKind::Value, "full: the size of shape [4294967296,4294967296,4] overflows.");
  expect_error(
      [] {
        check_shape("full", {2, -1});
      },
      ErrorKind::Value, "full: a dimension cannot be negative; got shape [2,-1].");
  expect_error([] { check_shape("full", {INT64_MIN}); }, ErrorKind::Value,
               "full: a dimension cannot be negative; got shape [-9223372036854775808].");
}

TEST(ShapeTest, Broadcasting) {
  auto b = [](Shape x, Shape y) { return broadcast_shapes("add", x, y).str(); };
  EXPECT_EQ(b({}, {}), "[]");
  EXPECT_EQ(b({}, {2, 3}), "[2,3]");
  EXPECT_EQ(b({3}, {2, 3}), "[2,3]");
  EXPECT_EQ(b({2, 1}, {3}), "[2,3]");
  EXPECT_EQ(b({4, 1, 3}, {5, 1}), "[4,5,3]");
  EXPECT_EQ(b({1}, {0}), "[0]") << "1 stretches to 0 as well";
  EXPECT_EQ(b({0, 1}, {1, 7}), "[0,7]");
  for (auto [x, y] : {std::pair<Shape, Shape>{{2, 3}, {3, 2}}, {{3, 2}, {2, 3}}, {{0}, {2}}})
    EXPECT_THROW(broadcast_shapes("add", x, y), Error);
  expect_error(
      [] {
        broadcast_shapes("add", {2, 3, 4}, {5, 4});
      },
      ErrorKind::Value,
      "add: shapes [2,3,4] and [5,4] do not broadcast (axis -2: 3 against 5). Sizes must be equal or 1; "
      "reshape or expand_dims one operand.");
}

TEST(ShapeTest, NormalizeAxis) {
  for (int rank = 1; rank <= 8; ++rank)
    for (int axis = -rank; axis < rank; ++axis) EXPECT_EQ(normalize_axis("sum", axis, rank), (axis + rank) % rank);
  expect_error([] { normalize_axis("sum", 2, 2); }, ErrorKind::Value,
               "sum: axis 2 is out of range for a tensor with 2 dimensions; valid are -2..1.");
  expect_error([] { normalize_axis("sum", -3, 2); }, ErrorKind::Value,
               "sum: axis -3 is out of range for a tensor with 2 dimensions; valid are -2..1.");
  expect_error([] { normalize_axis("sum", 0, 0); }, ErrorKind::Value,
               "sum: axis 0 is out of range for a tensor with 0 dimensions, which has no axis.");
  expect_error([] { normalize_axis("sum", INT64_MIN, 3); }, ErrorKind::Value,
               "sum: axis -9223372036854775808 is out of range for a tensor with 3 dimensions; valid are -3..2.");
}

TEST(LayoutTest, ContiguousStrides) {
  Shape s{2, 3, 4};
  Layout l = Layout::contiguous(s);
  EXPECT_THAT(std::vector<int64_t>(l.stride, l.stride + 3), testing::ElementsAre(12, 4, 1));
  EXPECT_EQ(l.offset, 0);
  EXPECT_TRUE(l.is_contiguous(s));
  std::swap(l.stride[0], l.stride[1]);
  EXPECT_FALSE(l.is_contiguous(s));
}

TEST(LayoutTest, StridesOfSizeOneDimsDoNotMatter) {
  Shape s{2, 1, 4};
  Layout l = Layout::contiguous(s);
  l.stride[1] = 12345;
  EXPECT_TRUE(l.is_contiguous(s));
  l.stride[1] = 0;
  EXPECT_TRUE(l.is_contiguous(s));
  EXPECT_FALSE(l.overlaps(s));
  l.offset = 9;
  EXPECT_TRUE(l.is_contiguous(s)) << "an offset moves the start, not the layout";
}

TEST(LayoutTest, BroadcastAndReversedAreNotContiguous) {
  Shape s{2, 3};
  Layout l = Layout::contiguous(s);
  l.stride[0] = 0;
  EXPECT_FALSE(l.is_contiguous(s));
  EXPECT_TRUE(l.overlaps(s));
  l = Layout::contiguous(s);
  l.stride[1] = -1;
  EXPECT_FALSE(l.is_contiguous(s));
  EXPECT_FALSE(l.overlaps(s));
}

}  // namespace
}  // namespace mge
