// Random ops are functions of their state: int32[4] = seed low, seed high, counter low, counter high (see
// base/philox.h). Element i draws from Philox counter + i/4, word i%4; new_state moves the counter past what was used.
#pragma once
#include "base/philox.h"
#include "op/attrs.h"

namespace mge {

struct RngUniformAttrs {
  Ints shape{};
  double lo = 0, hi = 1;
  static constexpr auto fields() {
    return field_list("shape", &RngUniformAttrs::shape, "lo", &RngUniformAttrs::lo, "hi", &RngUniformAttrs::hi);
  }
};

struct RngNormalAttrs {
  Ints shape{};
  double mean = 0, std = 1;
  static constexpr auto fields() {
    return field_list("shape", &RngNormalAttrs::shape, "mean", &RngNormalAttrs::mean, "std", &RngNormalAttrs::std);
  }
};

struct DropoutAttrs {
  double p = 0.5;
  static constexpr auto fields() { return field_list("p", &DropoutAttrs::p); }
};

struct MultinomialAttrs {
  int64_t num_samples = 1;
  bool replacement = false;
  static constexpr auto fields() {
    using A = MultinomialAttrs;
    return field_list("num_samples", &A::num_samples, "replacement", &A::replacement);
  }
};

struct SkipAttrs {
  int64_t n = 0;  // random words; rounded up to whole counters
  static constexpr auto fields() { return field_list("n", &SkipAttrs::n); }
};

struct PermutationAttrs {
  int64_t n = 0;
  static constexpr auto fields() { return field_list("n", &PermutationAttrs::n); }
};

/// rng_gamma and rng_poisson draw until they accept. Each element has so many counters of its own, four words each;
/// the chance that they do not suffice is below 1e-12, and then the last draw stands.
constexpr int64_t kRejectionCounters = 16;

struct RngState {
  Philox philox;
  uint64_t counter;
};
inline RngState read_rng_state(const int32_t* s) {
  auto join = [](int32_t lo, int32_t hi) {
    return static_cast<uint64_t>(static_cast<uint32_t>(lo)) | static_cast<uint64_t>(static_cast<uint32_t>(hi)) << 32;
  };
  return {{join(s[0], s[1])}, join(s[2], s[3])};
}
/// State after `n` elements were drawn from `s`.
inline void advance_rng_state(const int32_t* s, int64_t n, int32_t* out) {
  uint64_t counter = read_rng_state(s).counter + (static_cast<uint64_t>(n) + 3) / 4;
  out[0] = s[0];
  out[1] = s[1];
  out[2] = static_cast<int32_t>(static_cast<uint32_t>(counter));
  out[3] = static_cast<int32_t>(static_cast<uint32_t>(counter >> 32));
}

}  // namespace mge
