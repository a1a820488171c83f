#include "pass/options.h"

#include <algorithm>

#include "base/error.h"

namespace mge::pass {
namespace {

constexpr RewriteName kRewrites[] = {
    {kDivSelf, "div_self", "x / x -> 1"},
    {kSubSelf, "sub_self", "x - x -> 0"},
    {kMulZero, "mul_zero", "x * 0 -> 0"},
    {kAddZero, "add_zero", "x + 0 -> x"},
    {kLogExp, "log_exp", "log(exp(x)) -> x, log(exp(x) * y) -> x + log(y)"},
    {kLogSumExp, "log_sum_exp", "log(exp(x) + exp(y)) -> logaddexp(x, y)"},
    {kLog1p, "log1p", "log(1 + x) -> log1p(x), exp(x) - 1 -> expm1(x)"},
    {kMergeConstants, "merge_constants", "(x * c1) * c2 -> x * (c1 * c2), (x + c1) + c2 -> x + (c1 + c2)"},
    {kReassociate, "reassociate", "chains of + and of * take their small operands first"},
    {kDivToMul, "div_to_mul", "x / c -> x * (1 / c)"},
    {kSumToMean, "sum_to_mean", "sum(x) / n -> mean(x) in 16 bits, too"},
    {kDoubleCast, "double_cast", "a cast to 16 bits and back is left out"},
    {kFoldBatchNorm, "fold_batch_norm", "conv(x, w) * s -> conv(x, w * s) for constant w and s"},
    {kRemoveDropout, "remove_dropout", "dropout(x) -> x when a graph is optimised for inference"},
};

struct Flag {
  const char* keyword;  // as dump spells it
  int bit;
  bool InferenceOptions::*field;
};
constexpr Flag kFlags[] = {
    {"enable_io16xc32", 0, &InferenceOptions::f16_io_f32_comp},
    {"enable_ioc16", 1, &InferenceOptions::f16_io_comp},
    {"enable_fuse_conv_bias_nonlinearity", 2, &InferenceOptions::fuse_conv_bias_nonlinearity},
    {"enable_fuse_conv_bias_with_z", 3, &InferenceOptions::fuse_conv_bias_with_z},
    {"enable_weight_preprocess", 4, &InferenceOptions::weight_preprocess},
    {"enable_fuse_preprocess", 5, &InferenceOptions::fuse_preprocess},
    {"enable_fuse_grain", 6, &InferenceOptions::fuse_grain},
    {"enable_io_bf16", 24, &InferenceOptions::bf16_io},
    {"enable_winograd4", 25, &InferenceOptions::winograd4},
};
struct LayoutName {
  const char* keyword;
  LayoutTarget target;
  bool packed;         // weights, once
  const char* others;  // whose it is, if not a CPU's
};
// MegEngine's order: of several that are on, the last here wins, whatever the order they were given in.
constexpr LayoutName kLayouts[] = {
    {"enable_hwcd4", LayoutTarget::NHWCD4, false, "images of OpenCL, four channels to a texel"},
    {"enable_nchw4", LayoutTarget::NCHW4, false, "dot products of CUDA, blocks of 4 int8 channels"},
    {"enable_nchw88", LayoutTarget::NCHW88, true, nullptr},
    {"enable_nchw32", LayoutTarget::NCHW32, false, "tensor cores of CUDA, blocks of 32 int8 channels"},
    {"enable_nchw44", LayoutTarget::NCHW44, true, nullptr},
    {"enable_nchw44_dot", LayoutTarget::NCHW44_DOT, true, nullptr},
    {"enable_chwn4", LayoutTarget::CHWN4, false, "dot products of CUDA, 4 int8 channels of each image together"},
    {"enable_nchw64", LayoutTarget::NCHW64, false, "tensor cores of CUDA, blocks of 64 int4 channels"},
    {"enable_nhwc", LayoutTarget::NHWC, false, nullptr},
};
const LayoutName* named(LayoutTarget t) {
  for (auto& l : kLayouts)
    if (l.target == t) return &l;
  return nullptr;
}
// Other spellings: Lite's and load_and_run's.
struct Alias {
  const char *name, *keyword;
};
constexpr Alias kAliases[] = {
    {"enable_nhwcd4", "enable_hwcd4"},
    {"enable_f16_io_comp", "enable_ioc16"},
    {"weight_preprocess", "enable_weight_preprocess"},
    {"fuse_preprocess", "enable_fuse_preprocess"},
    {"fuse_grain", "enable_fuse_grain"},
};

std::string joined(const std::vector<std::string>& names, const char* quote = "") {
  std::string s;
  for (auto& n : names) s += (s.empty() ? "" : ", ") + (quote + n) + quote;
  return s;
}

}  // namespace

std::span<const RewriteName> rewrite_names() { return kRewrites; }

uint32_t parse_rewrites(std::span<const std::string> names) {
  uint32_t bits = 0;
  for (auto& name : names) {
    uint32_t found = 0;
    for (auto& r : kRewrites)
      if (name == "all" || name == r.name) found |= r.bit;
    if (!found) {
      std::vector<std::string> known{"all"};
      for (auto& r : kRewrites) known.push_back(r.name);
      fail(ErrorKind::Value, "rewrites: there is none called '{}'. There are {}.", name, joined(known));
    }
    bits |= found;
  }
  return bits;
}

std::string_view layout_name(LayoutTarget t) {
  const LayoutName* l = named(t);
  return l ? std::string_view(l->keyword).substr(7) : "default";
}
bool wants_packed_weights(LayoutTarget t) {
  const LayoutName* l = named(t);
  return l && l->packed;
}
std::string_view layout_of_others(LayoutTarget t) {
  const LayoutName* l = named(t);
  return l && l->others ? l->others : "";
}

uint64_t InferenceOptions::word() const {
  uint64_t w = static_cast<uint64_t>(layout) << 32;
  for (auto& f : kFlags)
    if (this->*f.field) w |= uint64_t{1} << f.bit;
  return w;
}

InferenceOptions InferenceOptions::from_word(uint64_t word) {
  InferenceOptions o;
  uint64_t rest = word & 0xffffffff;
  for (auto& f : kFlags) {
    o.*f.field = word >> f.bit & 1;
    rest &= ~(uint64_t{1} << f.bit);
  }
  o.layout = static_cast<LayoutTarget>(word >> 32);
  bool known = o.layout == LayoutTarget::Default;
  for (auto& l : kLayouts) known |= l.target == o.layout;
  MGE_CHECK(!rest && known, Value, "inference options: {:#x} has {} nobody here knows; the file is of a newer version.",
            word, rest ? "bits" : "a layout");
  return o;
}

InferenceOptions parse_inference(const Keywords& keywords) {
  InferenceOptions o;
  o.fuse_grain = true;
  std::vector<std::string> unknown;
  const LayoutName* wins = nullptr;
  for (auto& [given, on] : keywords) {
    std::string name = given;
    for (auto& a : kAliases)
      if (name == a.name) name = a.keyword;
    auto flag = std::ranges::find_if(kFlags, [&](auto& f) { return name == f.keyword; });
    auto layout = std::ranges::find_if(kLayouts, [&](auto& l) { return name == l.keyword; });
    if (flag != std::end(kFlags))
      o.*flag->field = on;
    else if (layout == std::end(kLayouts))
      unknown.push_back(given);
    else if (on)
      wins = std::max(wins, layout);
  }
  if (wins) o.layout = wins->target;
  if (!unknown.empty()) {
    std::vector<std::string> known;
    for (auto& f : kFlags) known.push_back(f.keyword);
    for (auto& l : kLayouts) known.push_back(l.keyword);
    std::ranges::sort(known);
    fail(ErrorKind::Value, "unknown options: [{}]. There are {}.", joined(unknown, "'"), joined(known));
  }
  MGE_CHECK(!o.bf16_io || !(o.f16_io_comp || o.f16_io_f32_comp), Value,
            "inference options: enable_io_bf16 and {} exclude each other; values are stored in one format.",
            o.f16_io_comp ? "enable_ioc16" : "enable_io16xc32");
  return o;
}

std::vector<std::string> inference_keywords(const InferenceOptions& o) {
  std::vector<std::string> names;
  for (auto& f : kFlags)
    if (o.*f.field) names.push_back(f.keyword);
  for (auto& l : kLayouts)
    if (l.target == o.layout) names.push_back(l.keyword);
  return names;
}

}  // namespace mge::pass
