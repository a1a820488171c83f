#include <cmath>
#include <numbers>

#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/rng/rng.h"

namespace mge {
namespace {

// f(element, its four random words); the words are those of element / 4.
template <class F>
void each_draw(const int32_t* state, int64_t n, F f) {
  RngState s = read_rng_state(state);
  for (int64_t i = 0; i < n; i += 4) {
    auto words = s.philox(s.counter + static_cast<uint64_t>(i / 4));
    for (int64_t j = i; j < n && j < i + 4; ++j) f(j, words);
  }
}

void run_bits(const KernelArgs& a) {
  const auto* state = a.in[0].data<int32_t>();
  auto* y = a.out[0].data<int32_t>();
  each_draw(state, a.out[0].numel(), [&](int64_t i, const auto& w) { y[i] = static_cast<int32_t>(w[i % 4]); });
  advance_rng_state(state, a.out[0].numel(), a.out[1].data<int32_t>());
}

void run_uniform(const KernelArgs& a) {
  const auto& at = a.as<RngUniformAttrs>();
  float lo = static_cast<float>(at.lo), range = static_cast<float>(at.hi - at.lo);
  const auto* state = a.in[0].data<int32_t>();
  float* y = a.out[0].data<float>();
  each_draw(state, a.out[0].numel(), [&](int64_t i, const auto& w) { y[i] = philox_uniform(w[i % 4]) * range + lo; });
  advance_rng_state(state, a.out[0].numel(), a.out[1].data<int32_t>());
}

// Box-Muller: words 0,1 give elements 0,1 and words 2,3 give elements 2,3.
void run_normal(const KernelArgs& a) {
  const auto& at = a.as<RngNormalAttrs>();
  float mean = static_cast<float>(at.mean), std = static_cast<float>(at.std);
  const auto* state = a.in[0].data<int32_t>();
  float* y = a.out[0].data<float>();
  each_draw(state, a.out[0].numel(), [&](int64_t i, const auto& w) {
    size_t pair = static_cast<size_t>(i % 4 / 2 * 2);
    double radius = std::sqrt(-2 * std::log(static_cast<double>(philox_uniform(w[pair]))));
    double angle = 2 * std::numbers::pi * static_cast<double>(philox_uniform(w[pair + 1]));
    y[i] = static_cast<float>(radius * (i % 2 ? std::sin(angle) : std::cos(angle))) * std + mean;
  });
  advance_rng_state(state, a.out[0].numel(), a.out[1].data<int32_t>());
}

struct Dropout {
  template <class T>
  static void run(const KernelArgs& a, DType store) {
    double p = a.as<DropoutAttrs>().p;
    float drop = static_cast<float>(p);
    T keep = ref::rounded(static_cast<T>(1 / (1 - p)), store);
    const auto* state = a.in[1].data<int32_t>();
    const T* x = a.in[0].data<T>();
    T *y = a.out[0].data<T>(), *mask = a.out[1].data<T>();
    each_draw(state, a.in[0].numel(), [&](int64_t i, const auto& w) {
      mask[i] = philox_uniform(w[i % 4]) > drop ? keep : T(0);
      y[i] = x[i] * mask[i];
    });
    advance_rng_state(state, a.in[0].numel(), a.out[2].data<int32_t>());
  }
};

}  // namespace

void register_ref_rng(KernelRegistry& r) {
  r.add("rng_bits", KernelTier::Ref, Kernel{.name = "ref_rng_bits", .run = run_bits});
  r.add("rng_uniform", KernelTier::Ref, Kernel{.name = "ref_rng_uniform", .run = run_uniform});
  r.add("rng_normal", KernelTier::Ref, Kernel{.name = "ref_rng_normal", .run = run_normal});
  ref::add_floating<Dropout>(r, "dropout", "ref_dropout");
}

}  // namespace mge
