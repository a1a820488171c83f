#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"

namespace mge {
namespace {

template <class F>
Error caught(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::Internal, ""};
}

TEST(ErrorTest, CheckFormatsOnlyWhenItFails) {
  int formatted = 0;
  auto costly = [&] { return ++formatted; };
  MGE_CHECK(true, Value, "never {}", costly());
  EXPECT_EQ(formatted, 0);
  Error e = caught([&] { MGE_CHECK(1 + 1 == 3, Type, "op: got {} and {}", costly(), "text"); });
  EXPECT_EQ(e.kind(), ErrorKind::Type);
  EXPECT_EQ(e.text(), "op: got 1 and text");
  EXPECT_STREQ(e.what(), "op: got 1 and text");
}

TEST(ErrorTest, AssertNamesFileAndAsksForAReport) {
  Error e = caught([] { MGE_ASSERT(false, "node %{} has no users", 12); });
  EXPECT_EQ(e.kind(), ErrorKind::Internal);
  EXPECT_THAT(e.text(), testing::HasSubstr("internal error: node %12 has no users"));
  EXPECT_THAT(e.text(), testing::HasSubstr("error_test.cpp:"));
  EXPECT_THAT(e.text(), testing::HasSubstr("Please report"));
}

TEST(ErrorTest, EnvironmentErrors) {
  Error e = caught([] { MGE_FAIL_ENV("cannot read {}: {}", "a.mge", "no such file"); });
  EXPECT_EQ(e.kind(), ErrorKind::Env);
  EXPECT_EQ(e.text(), "cannot read a.mge: no such file");
}

TEST(ErrorTest, LocationIsAddedOnce) {
  Error e(ErrorKind::Value, "conv2d: wrong");
  e.set_location("");
  EXPECT_FALSE(e.located());
  e.set_location("train.py:31 in step");
  e.set_location("other.py:1");
  EXPECT_EQ(e.text(), "conv2d: wrong\n  at train.py:31 in step");
}

TEST(HashTest, MixDependsOnOrderAndValue) {
  EXPECT_NE(hash_mix(hash_mix(0, 1), 2), hash_mix(hash_mix(0, 2), 1));
  EXPECT_NE(hash_mix(0, 0), 0u);
  EXPECT_NE(hash_bytes("ab"), hash_bytes("ba"));
  EXPECT_NE(hash_bytes(std::string_view("a\0", 2)), hash_bytes("a"));
  EXPECT_NE(hash_double(0.0), hash_double(-0.0));
}

}  // namespace
}  // namespace mge
