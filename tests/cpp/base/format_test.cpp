// Texts are judged by what printf writes, and numbers by being read back.
#include "base/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

namespace mge {
namespace {

template <class... A>
std::string printed(const char* pattern, A... a) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, a...);
  return text;
}

TEST(Format, TakesValuesInOrderAndByNumber) {
  const std::string s = "text";
  EXPECT_EQ(format("{} {} {} {} {}", true, 'x', "abc", s, std::string_view(s).substr(1)), "true x abc text ext");
  EXPECT_EQ(format("{0}{0} {1}, {{{0}}}", 1, 2u), "11 2, {1}");
  EXPECT_EQ(format("{} {}", int8_t{-3}, uint8_t{200}), "-3 200");
  EXPECT_EQ(format("no value"), "no value");
}

TEST(Format, SaysWhereAValueIsMissing) { EXPECT_EQ(format("{} and {}", 1), "1 and {?}"); }

TEST(Format, WidthsAndBases) {
  EXPECT_EQ(format("{:<8}|{:>5}|{:4}|{:4}|", "ab", "abc", 12, "x"), "ab      |  abc|  12|x   |");
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t u = random();
    EXPECT_EQ(format("{} {}", static_cast<int64_t>(u), u), printed("%lld %llu", static_cast<long long>(u), u));
    EXPECT_EQ(format("{:x} {:#x} {:016x}", u, u, u), printed("%llx %#llx %016llx", u, u, u));
    const int n = static_cast<int>(u % 3000) - 1500;
    EXPECT_EQ(format("{:6}|{:<6}|{:06}", n, n, n), printed("%6d|%-6d|%06d", n, n, n));
  }
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(format("{}", least), "-9223372036854775808");
}

TEST(Format, DigitsAsAsked) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150) * (random() % 2 ? 1 : -1);
    EXPECT_EQ(format("{:g} {:.3g} {:.9g} {:.17g}", x, x, x, x), printed("%g %.3g %.9g %.17g", x, x, x, x));
    EXPECT_EQ(format("{:.1f} {:.3f}", x, x), printed("%.1f %.3f", x, x));
    EXPECT_EQ(format("{:a}", x), printed("%a", x));
    EXPECT_EQ(format("{:a}", static_cast<float>(x)), printed("%a", static_cast<double>(static_cast<float>(x))));
  }
}

TEST(Format, TheFewestDigitsThatAreReadBack) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t u = random();
    double d;
    float f;
    std::memcpy(&d, &u, sizeof d);
    std::memcpy(&f, &u, sizeof f);
    if (std::isfinite(d)) {
      EXPECT_EQ(std::strtod(format("{}", d).c_str(), nullptr), d);
    }
    if (std::isfinite(f)) {
      EXPECT_EQ(std::strtof(format("{}", f).c_str(), nullptr), f);
    }
  }
  const std::pair<double, const char*> known[] = {
      {0.0, "0"},        {-0.0, "-0"},        {1.0, "1"},           {0.1, "0.1"},     {1e15, "1000000000000000"},
      {1e16, "1e+16"},   {0.0001, "0.0001"},  {1e-5, "1e-05"},      {-12.5, "-12.5"}, {1e300, "1e+300"},
      {HUGE_VAL, "inf"}, {-HUGE_VAL, "-inf"}, {std::nan(""), "nan"}};
  for (auto& [x, text] : known) EXPECT_EQ(format("{}", x), text);
  EXPECT_EQ(format("{} {}", 0.1f, 16777216.f), "0.1 16777216");
}

}  // namespace
}  // namespace mge
