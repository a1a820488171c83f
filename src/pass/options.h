// What a user may ask of the passes: one struct each for a graph that is compiled and for one that is shipped.
//   InferenceOptions o = parse_inference({{"enable_io16xc32", true}, {"enable_nchw88", true}});
//   o.word()                              // as files and Lite know it; from_word is the way back
//   pass::optimize_for_inference(g, {.inference = o, .evaluate = ...});
// What changes numbers is off unless it is named here (docs/numerics.md).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mge::pass {

enum class Switch : uint8_t { Unset, Off, On };

/// Rewrites that can change bits; each runs only when asked for by its name (value_rewrites.cpp has the rules).
enum Rewrite : uint32_t {
  kDivSelf = 1u << 0,         // x / x -> 1
  kSubSelf = 1u << 1,         // x - x -> 0
  kMulZero = 1u << 2,         // x * 0 -> 0
  kAddZero = 1u << 3,         // x + 0 -> x, also where x may be -0.0
  kLogExp = 1u << 4,          // log(exp(x)) -> x, log(exp(x) * b) -> x + log(b)
  kLogSumExp = 1u << 5,       // log(exp(x) + exp(y)) -> logaddexp(x, y)
  kLog1p = 1u << 6,           // log(1 + x) -> log1p(x), exp(x) - 1 -> expm1(x)
  kMergeConstants = 1u << 7,  // (x * c1) * c2 -> x * (c1 * c2), (x + c1) + c2 -> x + (c1 + c2)
  kReassociate = 1u << 8,     // operands of a chain of + or * in the order of their size, small ones first
  kDivToMul = 1u << 9,        // x / c -> x * (1 / c)
  kSumToMean = 1u << 10,      // sum(x) / n -> mean(x), also where the sum rounds to 16 bits
  kDoubleCast = 1u << 11,     // a cast to 16 bits and back is left out
  kFoldBatchNorm = 1u << 12,  // conv(x, w) * s -> conv(x, w * s) for constants
  kRemoveDropout = 1u << 13,  // dropout(x) -> x, in a graph that is optimised for inference
};
struct RewriteName {
  Rewrite bit;
  const char* name;
  const char* what;
};
std::span<const RewriteName> rewrite_names();
/// Bits of these names; "all" is every one. A Value error that lists the names for an unknown one.
uint32_t parse_rewrites(std::span<const std::string> names);

/// `graph_opt_config` of a trace.
struct GraphOptimizationConfig {
  Switch jit_fuse_dimshuffle = Switch::Unset;  // transpositions inside fused regions
  Switch jit_fuse_reduce = Switch::Unset;      // reductions at the end of fused regions
  uint32_t rewrites = 0;                       // of Rewrite
};

/// Which physical layout convolutions are to work in. The numbers are MegEngine's, except NHWC. On a CPU blocks of
/// channels are inside kernels: the targets that MegEngine has for CPUs have weights packed into them once.
enum class LayoutTarget : uint32_t {
  Default,
  NCHW4,
  NHWCD4,
  NCHW88,
  NCHW44,
  NCHW44_DOT,
  NCHW32,
  CHWN4,
  NCHW64,
  NHWC = 0x100,
};
std::string_view layout_name(LayoutTarget t);  // "nchw44_dot"; "default"
/// Images are channels-last wherever a kernel has that order, not only where it costs least.
inline bool wants_channels_last(LayoutTarget t) { return t == LayoutTarget::NHWC; }
/// Weights are packed when a program is compiled, as with weight_preprocess.
bool wants_packed_weights(LayoutTarget t);
/// Empty, or whose layout it is, if not a CPU's: nothing here works in it.
std::string_view layout_of_others(LayoutTarget t);

struct InferenceOptions {
  bool f16_io_f32_comp = false;              // float16 between ops, products add up in float32
  bool f16_io_comp = false;                  // float16 throughout
  bool fuse_conv_bias_nonlinearity = false;  // both are done in any case
  bool fuse_conv_bias_with_z = false;
  bool weight_preprocess = false;  // kernels keep constant weights in the form they want
  bool fuse_preprocess = false;    // image bytes to a normalised tensor in one op
  bool fuse_grain = false;         // sum / count as a mean, global pooling as a reduction
  bool bf16_io = false;            // bfloat16 between ops (ours: no bit of MegEngine's)
  bool winograd4 = false;          // accepted: 3x3 convolutions use F(4x4, 3x3) in any case (ours, too)
  LayoutTarget layout = LayoutTarget::Default;
  uint32_t rewrites = 0;  // of Rewrite; not part of the word: what they did is done in the file

  bool operator==(const InferenceOptions&) const = default;
  /// Bits 0-6 as above, the layout in the high half. Ours are bits 24 (bf16_io), 25 (winograd4) and layout 0x100
  /// (NHWC).
  uint64_t word() const;
  /// A Value error for bits or a layout nobody knows.
  static InferenceOptions from_word(uint64_t word);
};

/// What MegEngine's files may hold of a word.
constexpr uint64_t kMegEngineOptionBits = 0xf'0000'007f;

using Keywords = std::vector<std::pair<std::string, bool>>;
/// Keywords of dump, Lite and load_and_run: enable_io16xc32, enable_nchw44 ... Of several layouts one wins,
/// by a fixed order as in MegEngine. fuse_grain is on unless said otherwise. A Value error "unknown options: [...]"
/// that lists those there are.
InferenceOptions parse_inference(const Keywords& keywords);
/// Keywords that are on, as dump spells them.
std::vector<std::string> inference_keywords(const InferenceOptions& o);

}  // namespace mge::pass
