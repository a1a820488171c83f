#include "core/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "base/error.h"
#include "core/half.h"
#include "core/meta.h"

namespace mge {
namespace {

TEST(DTypeTest, NamesAreUniqueAndParseBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    auto t = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(dtype_name(t)).second) << dtype_name(t);
    EXPECT_EQ(parse_dtype(dtype_name(t)), t);
  }
  DType t = DType::I8;
  EXPECT_FALSE(find_dtype("Float32", &t));
  EXPECT_EQ(t, DType::I8) << "an unknown name must not write";
}

TEST(DTypeTest, UnknownNameListsTheKnownOnes) {
  try {
    parse_dtype("float31");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Type);
    EXPECT_THAT(e.text(), testing::StartsWith("dtype: 'float31' is not a dtype; known: bool, uint8, int8,"));
    EXPECT_THAT(e.text(), testing::HasSubstr("intb4."));
  }
}

TEST(DTypeTest, Classes) {
  auto in_class = [](bool (*f)(DType)) {
    std::string s;
    for (int i = 0; i < kDTypeCount; ++i)
      if (f(static_cast<DType>(i))) s += std::string(dtype_name(static_cast<DType>(i))) + " ";
    return s;
  };
  EXPECT_EQ(in_class(is_float), "float16 bfloat16 float32 float64 ");
  EXPECT_EQ(in_class(is_int), "uint8 int8 uint16 int16 int32 int64 ");
  EXPECT_EQ(in_class(is_unsigned), "uint8 uint16 ");
  EXPECT_EQ(in_class(is_quant), "quint8 qint8 qint16 qint32 quint4 qint4 qint1 ");
  EXPECT_EQ(in_class(is_low_bit), "intb1 intb2 intb4 ");
}

TEST(DTypeTest, BytesRoundUpForPackedTypes) {
  EXPECT_EQ(dtype_bytes(DType::F32, 3), 12u);
  EXPECT_EQ(dtype_bytes(DType::Bool, 3), 3u);
  EXPECT_EQ(dtype_bytes(DType::C64, 2), 16u);
  EXPECT_EQ(dtype_bytes(DType::QI4, 3), 2u);
  EXPECT_EQ(dtype_bytes(DType::QU4, 0), 0u);
  EXPECT_EQ(dtype_bytes(DType::IB2, 9), 9u);
}

// check_shape lets up to 2^59 - 1 elements through; their bytes must not wrap around to a small allocation.
TEST(DTypeTest, BytesOfTheLargestShapeDoNotWrap) {
  int64_t most = INT64_MAX / 16;
  for (int i = 0; i < kDTypeCount; ++i) {
    auto t = static_cast<DType>(i);
    double want = static_cast<double>(most) * dtype_info(t).bits / 8;
    EXPECT_NEAR(static_cast<double>(dtype_bytes(t, most)), want, want * 1e-9) << dtype_name(t);
  }
  EXPECT_EQ(dtype_bytes(DType::F64, int64_t{1} << 58), size_t{1} << 61);
}

TEST(MetaTest, PrintsAndHashes) {
  Meta a;
  a.shape = {2, 3};
  a.dtype = DType::I16;
  EXPECT_EQ(a.str(), "int16[2,3]");
  EXPECT_EQ(a.bytes(), 12u);
  Meta b = a;
  EXPECT_TRUE(a.same_type(b));
  EXPECT_EQ(a.hash(1), b.hash(1));
  b.dtype = DType::U16;
  EXPECT_FALSE(a.same_type(b));
  EXPECT_NE(a.hash(1), b.hash(1));
  EXPECT_EQ(Meta().str(), "float32[]");
}

// The compiler's own half type is the judge.
#if defined(__aarch64__) || defined(__arm__)
using Half = __fp16;
#else
using Half = _Float16;
#endif
TEST(HalfTest, EveryHalfConvertsToFloatExactly) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    Half ref;
    std::memcpy(&ref, &h, 2);
    float want = static_cast<float>(ref), got = half_to_float(h);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << bits;
      ASSERT_EQ(float_to_half(got), h) << "round trip of " << bits;
    }
  }
}

TEST(HalfTest, FloatRoundsToNearestEven) {
  std::mt19937 rng(1);
  auto check = [](float f) {
    Half ref = static_cast<Half>(f);
    uint16_t want;
    std::memcpy(&want, &ref, 2);
    uint16_t got = float_to_half(f);
    bool right = std::isnan(f) ? (got & 0x7c00) == 0x7c00 && (got & 0x3ff) : got == want;
    ASSERT_TRUE(right) << std::hexfloat << f << " gave " << got << " instead of " << want;
  };
  for (int i = 0; i < 300000; ++i) check(std::bit_cast<float>(static_cast<uint32_t>(rng())));
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {  // each half, the tie above it, and the floats beside the tie
    float lo = half_to_float(static_cast<uint16_t>(bits)), hi = half_to_float(static_cast<uint16_t>(bits + 1));
    float mid = bits + 1 == 0x7c00 ? 65520.0f : lo + (hi - lo) / 2;
    for (float f : {lo, mid, std::nextafter(mid, 0.0f), std::nextafter(mid, 1e30f)}) {
      check(f);
      check(-f);
    }
  }
  for (float f :
       {0.0f, -0.0f, INFINITY, -INFINITY, 65504.0f, 65519.996f, 65520.0f, 0x1p-25f, 0x1.000002p-25f, 0x1p-149f})
    check(f);
}

TEST(HalfTest, BfloatRoundsToNearestEven) {
  std::mt19937 rng(2);
  for (int i = 0; i < 300000; ++i) {
    float f = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    uint16_t got = float_to_bfloat(f);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(bfloat_to_float(got)));
      continue;
    }
    uint32_t u = std::bit_cast<uint32_t>(f);
    double below = bfloat_to_float(static_cast<uint16_t>(u >> 16)),
           above = bfloat_to_float(static_cast<uint16_t>((u >> 16) + 1));
    if (std::isinf(above)) above = std::copysign(0x1p128, above);
    double d_below = std::abs(f - below), d_above = std::abs(above - f);
    uint16_t want = d_below < d_above || (d_below == d_above && !(u >> 16 & 1)) ? static_cast<uint16_t>(u >> 16)
                                                                                : static_cast<uint16_t>((u >> 16) + 1);
    ASSERT_EQ(got, want) << std::hexfloat << f;
  }
  EXPECT_EQ(bfloat_to_float(float_to_bfloat(INFINITY)), INFINITY);
  EXPECT_EQ(bfloat_to_float(float_to_bfloat(3.4e38f)), INFINITY);
  EXPECT_EQ(float_to_bfloat(-0.0f), 0x8000);
}

}  // namespace
}  // namespace mge
