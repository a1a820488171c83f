#include "core/quant.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "core/meta.h"

namespace mge {
namespace {

TEST(QuantTest, EqualListsAreOne) {
  const Quant a = Quant::per_channel({0.1f, 0.2f}, {}, 0), b = Quant::per_channel({0.1f, 0.2f}, {0, 0}, 0);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(1), b.hash(1));
  EXPECT_NE(a, Quant::per_channel({0.1f, 0.2f}, {}, 1));
  EXPECT_NE(a, Quant::per_channel({0.1f, 0.3f}, {}, 0));
  EXPECT_NE(a, Quant::per_channel({0.1f, 0.2f}, {0, 1}, 0));
  EXPECT_EQ(a.channels().scale[1], 0.2f);
}

TEST(QuantTest, MetasDifferByIt) {
  Meta a, b;
  a.dtype = b.dtype = DType::QI8;
  a.quant = {0.5, 0, 0};
  b.quant = {0.25, 0, 0};
  EXPECT_FALSE(a.same_type(b));
  EXPECT_NE(a.hash(1), b.hash(1));
  b.quant = a.quant;
  EXPECT_TRUE(a.same_type(b));
}

TEST(QuantTest, TextRoundTrip) {
  for (const Quant& q : {Quant{0.1, 3, 0}, Quant{1, 0, 0}, Quant{1e-9, -7, 0},
                         Quant::per_channel({0.1f, 3.4e38f, 1e-38f}, {0, 255, -128}, 2, 3)}) {
    for (DType t : {DType::QI8, DType::QU4}) EXPECT_EQ(parse_qtype("t", print_qtype({t, q})), (QType{t, q}));
  }
  EXPECT_EQ(print_qtype({DType::QI8, {0.5, 0, 0}}), "qint8(0.5,0)");
  EXPECT_EQ(print_qtype({DType::F32, {}}), "float32");
  for (const char* bad : {"qint8(", "qint8(0.1)", "qint8(a,0)", "qint8([0.1],[0,1],0,1)", "qint8(0.1,0)x"})
    EXPECT_THROW(parse_qtype("t", bad), Error) << bad;
}

TEST(QuantTest, ListsAreChecked) {
  EXPECT_THROW(Quant::per_channel({}, {}, 0), Error);
  EXPECT_THROW(Quant::per_channel({0.1f}, {0, 0}, 0), Error);
  EXPECT_THROW(Quant::per_channel({0.0f}, {}, 0), Error);
  EXPECT_THROW(Quant::per_channel({0.1f}, {}, 8), Error);
  EXPECT_THROW(Quant::per_channel({0.1f}, {}, -1), Error);
}

TEST(QuantTest, ChannelsFollowShapes) {
  const Quant q = Quant::per_channel({1, 2, 3, 4}, {}, 1);
  auto axis = [](const Quant& x) { return std::pair(x.channels().axis, x.channels().span); };
  EXPECT_EQ(axis(reshaped(q, {2, 4, 6}, {2, 4, 2, 3})), std::pair(1, 1));
  EXPECT_EQ(axis(reshaped(q, {2, 4, 6}, {2, 2, 2, 6})), std::pair(1, 2));
  EXPECT_EQ(axis(reshaped(q, {2, 4, 6}, {1, 2, 4, 6})), std::pair(2, 1));
  EXPECT_THROW(reshaped(q, {2, 4, 6}, {8, 6}), Error);
  EXPECT_THROW(reshaped(q, {2, 4, 6}, {2, 24}), Error);
  const int64_t turn[] = {1, 2, 0}, part[] = {1, 0, 2};
  EXPECT_EQ(axis(transposed(q, turn, 3)), std::pair(0, 1));
  EXPECT_THROW(transposed(Quant::per_channel({1, 2, 3, 4}, {}, 0, 2), part, 3), Error);
}

TEST(QuantTest, FourBitsLieTwoToAByte) {
  for (int64_t n : {0, 1, 2, 7, 8}) {
    std::vector<int8_t> wide(static_cast<size_t>(n)), back(wide.size());
    std::iota(wide.begin(), wide.end(), -8);
    std::vector<uint8_t> packed(dtype_bytes(DType::QI4, n));
    pack4(wide.data(), packed.data(), n);
    unpack4(DType::QI4, packed.data(), back.data(), n);
    EXPECT_EQ(wide, back);
  }
}

}  // namespace
}  // namespace mge
