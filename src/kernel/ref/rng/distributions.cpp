// Distributions that need more than one uniform number per element. Every element draws from counters of its own, so
// the result does not depend on threads. They compute in double and call the C library, whose last bits may differ
// between machines.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/rng/rng.h"

namespace mge {
namespace {

/// The random numbers of one element.
class Source {
 public:
  Source(const RngState& s, uint64_t first) : philox_(s.philox), counter_(s.counter + first) {}
  /// Uniform in (0, 1), 53 bits from two words.
  double uniform() {
    if (used_ == 4) {
      words_ = philox_(counter_++);
      used_ = 0;
    }
    uint64_t bits = static_cast<uint64_t>(words_[used_]) << 32 | words_[used_ + 1];
    used_ += 2;
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
  }
  double normal() {
    double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  Philox philox_;
  uint64_t counter_;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
};

// G. Marsaglia, W. W. Tsang: A simple method for generating gamma variables (2000). One try takes two counters.
double draw_gamma(Source& r, double shape) {
  if (!(shape > 0)) return shape == 0 ? 0 : NAN;
  double boost = 1;
  if (shape < 1) {  // gamma(a) = gamma(a + 1) * u^(1/a)
    boost = std::pow(r.uniform(), 1 / shape);
    r.uniform();  // keeps tries aligned to whole counters
    shape += 1;
  }
  double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d), v = 1;
  for (int64_t tries = (kRejectionCounters - 1) / 2; tries > 0; --tries) {
    double x = r.normal(), u = r.uniform();
    r.uniform();
    double t = 1 + c * x;
    if (t <= 0) continue;
    v = t * t * t;
    if (std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) break;
  }
  return d * v * boost;
}

// W. Hoermann: The transformed rejection method for generating Poisson random variables (1993). One counter per try.
double draw_poisson(Source& r, double lam) {
  if (!(lam >= 0)) return NAN;
  if (lam < 10) {
    double u = r.uniform(), p = std::exp(-lam), sum = p;
    int k = 0;
    while (u > sum && k < 1000) sum += p *= lam / ++k;
    return k;
  }
  double b = 0.931 + 2.53 * std::sqrt(lam), a = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), accept = 0.9277 - 3.6224 / (b - 2), k = lam;
  for (int64_t tries = kRejectionCounters; tries > 0; --tries) {
    double u = r.uniform() - 0.5, v = r.uniform(), us = 0.5 - std::abs(u);
    double value = std::floor((2 * a / us + b) * u + lam + 0.43);
    if (us >= 0.07 && v <= accept) return value;
    if (value < 0 || (us < 0.013 && v > us)) continue;
    k = value;
    if (std::log(v * inverse_alpha / (a / (us * us) + b)) <= value * std::log(lam) - lam - std::lgamma(value + 1))
      return value;
  }
  return k;
}

template <class F>
void each_element(const int32_t* state, int64_t n, F f) {
  RngState s = read_rng_state(state);
  parallel_for(n, step_grain(8), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      Source r(s, static_cast<uint64_t>(i * kRejectionCounters));
      f(i, r);
    }
  });
}

void run_gamma(const KernelArgs& a) {
  const float *shape = a.in[0].data<float>(), *scale = a.in[1].data<float>();
  const auto* state = a.in[2].data<int32_t>();
  float* y = a.out[0].data<float>();
  int64_t n = a.out[0].numel();
  each_element(state, n, [&](int64_t i, Source& r) {
    y[i] = static_cast<float>(draw_gamma(r, static_cast<double>(shape[i])) * static_cast<double>(scale[i]));
  });
  advance_rng_state(state, n * kRejectionCounters * 4, a.out[1].data<int32_t>());
}

void run_poisson(const KernelArgs& a) {
  const float* lam = a.in[0].data<float>();
  const auto* state = a.in[1].data<int32_t>();
  float* y = a.out[0].data<float>();
  int64_t n = a.out[0].numel();
  each_element(state, n,
               [&](int64_t i, Source& r) { y[i] = static_cast<float>(draw_poisson(r, static_cast<double>(lam[i]))); });
  advance_rng_state(state, n * kRejectionCounters * 4, a.out[1].data<int32_t>());
}

void check_weights(const float* w, int64_t classes, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    MGE_CHECK(w[c] >= 0 && std::isfinite(w[c]), Value,
              "rng_multinomial: weights must be finite and not negative; got {} for class {} of row {}.", w[c], c, row);
    sum += static_cast<double>(w[c]);
  }
  MGE_CHECK(sum > 0, Value, "rng_multinomial: all weights of row {} are 0.", row);
}

// Each class waits an exponential time with its weight as rate; those that come first are drawn, in that order.
void draw_distinct(const RngState& s, const float* w, int64_t classes, int64_t row, int64_t samples, int32_t* y) {
  std::vector<std::pair<double, int32_t>> times(static_cast<size_t>(classes));
  for (int64_t c = 0; c < classes; ++c) {
    Source r(s, static_cast<uint64_t>(row * classes + c));
    double time = w[c] > 0 ? -std::log(r.uniform()) / static_cast<double>(w[c]) : INFINITY;
    times[static_cast<size_t>(c)] = {time, static_cast<int32_t>(c)};
  }
  std::partial_sort(times.begin(), times.begin() + samples, times.end());
  for (int64_t i = 0; i < samples; ++i) y[i] = times[static_cast<size_t>(i)].second;
}

void draw_repeated(const RngState& s, const float* w, int64_t classes, int64_t row, int64_t samples, int32_t* y) {
  std::vector<double> upto(static_cast<size_t>(classes));
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) upto[static_cast<size_t>(c)] = sum += static_cast<double>(w[c]);
  for (int64_t i = 0; i < samples; ++i) {
    Source r(s, static_cast<uint64_t>(row * samples + i));
    auto at = std::upper_bound(upto.begin(), upto.end(), r.uniform() * sum);
    if (at == upto.end()) at = std::lower_bound(upto.begin(), upto.end(), sum);  // rounded up to the end
    y[i] = static_cast<int32_t>(at - upto.begin());
  }
}

void run_multinomial(const KernelArgs& a) {
  const auto& at = a.as<MultinomialAttrs>();
  const float* w = a.in[0].data<float>();
  const auto* state = a.in[1].data<int32_t>();
  int64_t rows = a.in[0].shape[0], classes = a.in[0].shape[1];
  RngState s = read_rng_state(state);
  parallel_for(rows, step_grain(0.5 * (classes + at.num_samples)), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      check_weights(w + row * classes, classes, row);
      (at.replacement ? draw_repeated : draw_distinct)(s, w + row * classes, classes, row, at.num_samples,
                                                       a.out[0].data<int32_t>() + row * at.num_samples);
    }
  });
}

void run_skip(const KernelArgs& a) {
  advance_rng_state(a.in[0].data<int32_t>(), a.as<SkipAttrs>().n, a.out[0].data<int32_t>());
}

// Fisher and Yates: from the last place on, each is swapped with one of those up to it, chosen by 64 random bits.
void run_permutation(const KernelArgs& a) {
  int64_t n = a.as<PermutationAttrs>().n;
  const auto* state = a.in[0].data<int32_t>();
  RngState s = read_rng_state(state);
  auto* y = a.out[0].data<int32_t>();
  std::iota(y, y + n, 0);
  auto w = s.philox(s.counter + static_cast<uint64_t>(std::max<int64_t>(n - 1, 0) / 2));  // for two places
  for (int64_t i = n - 1; i > 0; --i) {
    if (i % 2 == 1) w = s.philox(s.counter + static_cast<uint64_t>(i / 2));
    size_t half = static_cast<size_t>(i % 2 * 2);
    uint64_t places = static_cast<uint64_t>(i) + 1;  // below 2^31, so that the product of 96 bits fits in two steps
    uint64_t j = (w[half] * places + (w[half + 1] * places >> 32)) >> 32;
    std::swap(y[i], y[j]);
  }
  advance_rng_state(state, n * 2, a.out[1].data<int32_t>());
}

}  // namespace

void register_ref_distributions(KernelRegistry& r) {
  r.add("rng_gamma", KernelTier::Ref, Kernel{.name = "ref_rng_gamma", .run = run_gamma});
  r.add("rng_poisson", KernelTier::Ref, Kernel{.name = "ref_rng_poisson", .run = run_poisson});
  r.add("rng_multinomial", KernelTier::Ref, Kernel{.name = "ref_rng_multinomial", .run = run_multinomial});
  r.add("rng_skip", KernelTier::Ref, Kernel{.name = "ref_rng_skip", .run = run_skip});
  r.add("rng_permutation", KernelTier::Ref, Kernel{.name = "ref_rng_permutation", .run = run_permutation});
}

}  // namespace mge
