// Draws from the words of Philox: element i takes word i % 4 of counter + i / 4. State: seed low, high, counter low, high.
#pragma once
#include "base/philox.h"
struct Args {
  i64 n;
  const int32_t* state;
  int32_t* new_state;
  O* y;
  O* mask;
  const O* x;
  double p, q;  // lo and hi, mean and deviation, or the rate of dropping
};
struct Draws {
  u64 seed, counter;
  __device__ explicit Draws(const int32_t* s)
      : seed(uint32_t(s[0]) | u64(uint32_t(s[1])) << 32), counter(uint32_t(s[2]) | u64(uint32_t(s[3])) << 32) {}
  // f(element, words of its counter)
  template <class F>
  __device__ void each(const Args& a, F f) const {
    const Philox philox{seed};
    for (i64 c = thread_number(); c * 4 < a.n; c += thread_count()) {
      const auto words = philox(counter + static_cast<u64>(c));
      for (i64 i = c * 4; i < a.n && i < c * 4 + 4; ++i) f(i, words);
    }
    if (thread_number() == 0) advance(a);
  }
  __device__ void advance(const Args& a) const {
    const u64 both[] = {seed, counter + (static_cast<u64>(a.n) + 3) / 4};
    for (int k = 0; k < 4; ++k) a.new_state[k] = static_cast<int32_t>(static_cast<uint32_t>(both[k / 2] >> k % 2 * 32));
  }
};
#ifdef MGE_BITS
extern "C" __global__ void mge_rng_bits(const __grid_constant__ Args a) {
  Draws(a.state).each(a, [&](i64 i, const auto& w) { a.y[i] = static_cast<int32_t>(w[i % 4]); });
}
// Fisher and Yates: each swap depends on those before it, so one thread makes them all.
extern "C" __global__ void mge_rng_permutation(const __grid_constant__ Args a) {
  const Draws d(a.state);
  const Philox philox{d.seed};
  if (thread_number()) return;
  const i64 n = a.n / 2;  // two words each
  for (i64 i = 0; i < n; ++i) a.y[i] = static_cast<int32_t>(i);
  for (i64 i = n - 1; i > 0; --i) {
    const auto w = philox(d.counter + static_cast<u64>(i / 2));
    const u64 half = i % 2 * 2, places = static_cast<u64>(i) + 1;
    const u64 j = (w[half] * places + (w[half + 1] * places >> 32)) >> 32;
    const int32_t kept = a.y[i];
    a.y[i] = a.y[j];
    a.y[j] = kept;
  }
  d.advance(a);
}
#else
extern "C" __global__ void mge_rng_uniform(const __grid_constant__ Args a) {
  const float lo = static_cast<float>(a.p), range = static_cast<float>(a.q - a.p);
  Draws(a.state).each(a, [&](i64 i, const auto& w) { a.y[i] = cast<O>(philox_uniform(w[i % 4]) * range + lo); });
}
#ifdef MGE_NORMAL  // with the bodies of log, sin and cos
extern "C" __global__ void mge_rng_normal(const __grid_constant__ Args a) {
  const float mean = static_cast<float>(a.p), std = static_cast<float>(a.q);
  Draws(a.state).each(a, [&](i64 i, const auto& w) {
    const int pair = i % 4 / 2 * 2;
    float radius, angle = philox_uniform(w[pair + 1]) * 0x1.921fb6p+2f, turn;
    log_body(philox_uniform(w[pair]), radius);
    radius = sqrt(radius * -2.0f);
    if (i % 2)
      sin_body(angle, turn);
    else
      cos_body(angle, turn);
    a.y[i] = radius * turn * std + mean;
  });
}
#endif
extern "C" __global__ void mge_dropout(const __grid_constant__ Args a) {
  typedef Compute<O> C;
  const float drop = static_cast<float>(a.p);
  const C keep = load(cast<O>(static_cast<C>(1 / (1 - a.p))));
  Draws(a.state).each(a, [&](i64 i, const auto& w) {
    const C m = philox_uniform(w[i % 4]) > drop ? keep : C(0);
    a.mask[i] = cast<O>(m);
    a.y[i] = cast<O>(load(a.x[i]) * m);
  });
}
#endif
