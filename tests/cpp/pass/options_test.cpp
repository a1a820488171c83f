#include "pass/options.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace mge::pass {
namespace {

std::string error_of(auto f) {
  try {
    f();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(InferenceOptions, TheWordIsMegEngines) {
  EXPECT_EQ(parse_inference({}).word(), 64u);  // fuse_grain is on unless switched off
  EXPECT_EQ(parse_inference({{"enable_fuse_grain", false}}).word(), 0u);
  const std::pair<const char*, uint64_t> bits[] = {
      {"enable_io16xc32", 1},
      {"enable_ioc16", 2},
      {"enable_fuse_conv_bias_nonlinearity", 4},
      {"enable_fuse_conv_bias_with_z", 8},
      {"enable_weight_preprocess", 16},
      {"enable_fuse_preprocess", 32},
      {"enable_fuse_grain", 64},
      {"enable_nchw4", uint64_t{1} << 32},
      {"enable_hwcd4", uint64_t{2} << 32},
      {"enable_nhwcd4", uint64_t{2} << 32},
      {"enable_nchw88", uint64_t{3} << 32},
      {"enable_nchw44", uint64_t{4} << 32},
      {"enable_nchw44_dot", uint64_t{5} << 32},
      {"enable_nchw32", uint64_t{6} << 32},
      {"enable_chwn4", uint64_t{7} << 32},
      {"enable_nchw64", uint64_t{8} << 32},
  };
  for (auto& [name, word] : bits) {
    InferenceOptions o = parse_inference({{"enable_fuse_grain", false}, {name, true}});
    EXPECT_EQ(o.word(), word) << name;
    EXPECT_EQ(o.word() & ~kMegEngineOptionBits, 0u);
    EXPECT_EQ(InferenceOptions::from_word(word), o) << name;
  }
  InferenceOptions ours =
      parse_inference({{"enable_io_bf16", true}, {"enable_nhwc", true}, {"enable_winograd4", true}});
  EXPECT_EQ(InferenceOptions::from_word(ours.word()), ours);
  EXPECT_THAT(inference_keywords(ours),
              testing::ElementsAre("enable_fuse_grain", "enable_io_bf16", "enable_winograd4", "enable_nhwc"));
}

// As in MegEngine: whatever the order of the keywords.
TEST(InferenceOptions, OneLayoutWins) {
  for (bool turned : {false, true}) {
    Keywords k{{"enable_nchw44", true}, {"enable_nchw32", true}, {"enable_nchw64", false}};
    if (turned) std::swap(k[0], k[1]);
    EXPECT_EQ(parse_inference(k).layout, LayoutTarget::NCHW44);
  }
  EXPECT_EQ(layout_name(LayoutTarget::NCHW44_DOT), "nchw44_dot");
  EXPECT_EQ(layout_name(LayoutTarget::Default), "default");
}

TEST(InferenceOptions, MistakesAreNamed) {
  EXPECT_THAT(error_of([] {
                parse_inference({{"enable_nchw5", true}, {"fast", false}});
              }),
              testing::StartsWith("unknown options: ['enable_nchw5', 'fast']. There are enable_chwn4, "));
  EXPECT_THAT(error_of([] { InferenceOptions::from_word(uint64_t{9} << 32); }),
              testing::HasSubstr("a layout nobody here knows"));
  EXPECT_THAT(error_of([] { InferenceOptions::from_word(1 << 12); }), testing::HasSubstr("bits nobody here knows"));
  EXPECT_THAT(error_of([] {
                parse_inference({{"enable_ioc16", true}, {"enable_io_bf16", true}});
              }),
              testing::HasSubstr("enable_io_bf16 and enable_ioc16 exclude each other"));
}

TEST(Rewrites, AreNamed) {
  const std::string some[] = {"log_exp", "div_self"};
  EXPECT_EQ(parse_rewrites(some), kLogExp | kDivSelf);
  const std::string all[] = {"all"};
  for (auto& r : rewrite_names()) EXPECT_TRUE(parse_rewrites(all) & r.bit) << r.name;
  const std::string bad[] = {"log_exp", "fast_math"};
  EXPECT_THAT(error_of([&] { parse_rewrites(bad); }),
              testing::StartsWith("rewrites: there is none called 'fast_math'. There are all, div_self, "));
}

}  // namespace
}  // namespace mge::pass
