// Philox with one counter per lane: the stream of base/philox.h, whatever the vector length or the number of threads.
#include "op/rng/rng.h"

#include <algorithm>
#include <numeric>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/rng/rng.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"
#include "kernel/simd/vec-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

namespace body_t = mge::body::HWY_NAMESPACE;
using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;
constexpr int64_t kBlock = 1024;  // elements drawn at a time; a multiple of 4 * kLanes

// High and low words of the 64-bit products of all lanes.
HWY_INLINE void multiply_wide(VU a, VU b, VU* high, VU* low) {
  const DU d;
  const hn::RepartitionToWide<DU> w;
  auto even = hn::MulEven(a, b);
  auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(w, a))),
                         hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(w, b))));
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// f(the first of them, their four words) for each kLanes of `n` counters from `counter` on.
template <class F>
HWY_INLINE void draw(uint64_t seed, uint64_t counter, int64_t n, F f) {
  const DU d;
  HWY_ALIGN uint32_t lo[kLanes], hi[kLanes];
  for (int64_t i = 0; i < n; i += kLanes, counter += kLanes) {
    for (int j = 0; j < kLanes; ++j)
      lo[j] = static_cast<uint32_t>(counter + j), hi[j] = static_cast<uint32_t>((counter + j) >> 32);
    VU c0 = hn::Load(d, lo), c1 = hn::Load(d, hi), c2 = hn::Zero(d), c3 = hn::Zero(d);
    VU k0 = hn::Set(d, static_cast<uint32_t>(seed)), k1 = hn::Set(d, static_cast<uint32_t>(seed >> 32));
    for (int round = 0; round < 10; ++round) {
      VU h0, l0, h1, l1;
      multiply_wide(hn::Set(d, 0xD2511F53u), c0, &h0, &l0);
      multiply_wide(hn::Set(d, 0xCD9E8D57u), c2, &h1, &l1);
      c0 = hn::Xor(hn::Xor(h1, c1), k0);
      c2 = hn::Xor(hn::Xor(h0, c3), k1);
      c1 = l1;
      c3 = l0;
      k0 = hn::Add(k0, hn::Set(d, 0x9E3779B9u));
      k1 = hn::Add(k1, hn::Set(d, 0xBB67AE85u));
    }
    f(i, c0, c1, c2, c3);
  }
}

// kBlock uniform numbers of (0,1] for the counters from `counter` on.
void draw_block(uint64_t seed, uint64_t counter, float* out) {
  const DF df;
  draw(seed, counter, kBlock / 4, [&](int64_t i, VU c0, VU c1, VU c2, VU c3) HWY_ATTR {
    auto uniform = [&](VU c) HWY_ATTR {
      VF v = hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<DF>(), hn::ShiftRight<8>(c)));
      return hn::Mul(hn::Add(v, set(1.0f)), set(0x1p-24f));
    };
    hn::StoreInterleaved4(uniform(c0), uniform(c1), uniform(c2), uniform(c3), df, out + 4 * i);
  });
}

// f(first element, count, its uniforms) over blocks of n elements.
template <class F>
void each_block(const int32_t* state, int64_t n, F f) {
  RngState s = read_rng_state(state);
  parallel_for((n + kBlock - 1) / kBlock, value_grain(8 * kBlock), [&](int64_t b, int64_t e) {
    HWY_ALIGN float u[kBlock];
    for (; b < e; ++b) {
      draw_block(s.philox.seed, s.counter + static_cast<uint64_t>(b) * (kBlock / 4), u);
      f(b * kBlock, std::min(kBlock, n - b * kBlock), u);
    }
  });
}

void rng_uniform(const KernelArgs& a) {
  const auto& at = a.as<RngUniformAttrs>();
  VF lo = set(static_cast<float>(at.lo)), range = set(static_cast<float>(at.hi - at.lo));
  const auto* state = a.in[0].data<int32_t>();
  float* y = a.out[0].data<float>();
  each_block(state, a.out[0].numel(), [&](int64_t first, int64_t n, const float* u) {
    each_vector(
        n, [&](int64_t i, int k) { store_n(hn::Add(hn::Mul(hn::LoadU(DF(), u + i), range), lo), y + first + i, k); });
  });
  advance_rng_state(state, a.out[0].numel(), a.out[1].data<int32_t>());
}

void rng_normal(const KernelArgs& a) {
  const auto& at = a.as<RngNormalAttrs>();
  VF mean = set(static_cast<float>(at.mean)), std = set(static_cast<float>(at.std));
  const auto* state = a.in[0].data<int32_t>();
  float* y = a.out[0].data<float>();
  each_block(state, a.out[0].numel(), [&](int64_t first, int64_t n, float* u) {
    using V = body_t::VF;
    for (int64_t i = 0; i < n; i += 2 * kLanes) {  // u holds whole vectors past n
      VF u1, u2;
      hn::LoadInterleaved2(DF(), u + i, u1, u2);
      V radius = body_t::sqrt(body_t::log(V(u1)) * V(-2.0f)), angle = V(u2) * V(0x1.921fb6p+2f);
      V c = radius * body_t::cos(angle), s = radius * body_t::sin(angle);
      hn::StoreInterleaved2(hn::Add(hn::Mul(c.v, std), mean), hn::Add(hn::Mul(s.v, std), mean), DF(), u + i);
    }
    each_vector(n, [&](int64_t i, int k) { store_n(hn::LoadU(DF(), u + i), y + first + i, k); });
  });
  advance_rng_state(state, a.out[0].numel(), a.out[1].data<int32_t>());
}

void dropout(const KernelArgs& a) {
  double p = a.as<DropoutAttrs>().p;
  VF drop = set(static_cast<float>(p)), keep = set(static_cast<float>(1 / (1 - p)));
  const auto* state = a.in[1].data<int32_t>();
  const float* x = a.in[0].data<float>();
  float *y = a.out[0].data<float>(), *mask = a.out[1].data<float>();
  each_block(state, a.in[0].numel(), [&](int64_t first, int64_t n, const float* u) {
    each_vector(n, [&](int64_t i, int k) {
      VF m = hn::IfThenElseZero(hn::Gt(hn::LoadU(DF(), u + i), drop), keep);
      store_n(m, mask + first + i, k);
      store_n(hn::Mul(load_n(x + first + i, k), m), y + first + i, k);
    });
  });
  advance_rng_state(state, a.in[0].numel(), a.out[2].data<int32_t>());
}

// The order that the reference kernel draws (kernel/ref/rng/distributions.cpp). What an element changes places with is
// known a block ahead, so that none waits for its way from memory.
void rng_permutation(const KernelArgs& a) {
  const int64_t n = a.as<PermutationAttrs>().n;
  const auto* state = a.in[0].data<int32_t>();
  const RngState s = read_rng_state(state);
  auto* y = a.out[0].data<int32_t>();
  std::iota(y, y + n, 0);
  constexpr int64_t kPlaces = 256;  // a multiple of 2 * kLanes
  HWY_ALIGN uint32_t words[2 * kPlaces];
  uint32_t with[kPlaces];
  for (int64_t end = n; end > 1;) {
    const int64_t first = (end - 1) / kPlaces * kPlaces;
    draw(s.philox.seed, s.counter + static_cast<uint64_t>(first / 2), kPlaces / 2,
         [&](int64_t i, VU c0, VU c1, VU c2, VU c3)
             HWY_ATTR { hn::StoreInterleaved4(c0, c1, c2, c3, DU(), words + 4 * i); });
    for (int64_t i = first; i < end; ++i) {
      const uint64_t places = static_cast<uint64_t>(i) + 1, high = words[2 * (i - first)],
                     low = words[2 * (i - first) + 1];  // the product of 96 bits fits in two steps
      with[i - first] = static_cast<uint32_t>((high * places + (low * places >> 32)) >> 32);
      __builtin_prefetch(y + with[i - first], 1);
    }
    for (int64_t i = end - 1; i >= std::max<int64_t>(first, 1); --i) std::swap(y[i], y[with[i - first]]);
    end = first;
  }
  advance_rng_state(state, n * 2, a.out[1].data<int32_t>());
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(rng_uniform);
HWY_EXPORT(rng_normal);
HWY_EXPORT(dropout);
HWY_EXPORT(rng_permutation);

void register_rng(KernelRegistry& r) {
  add(r, "rng_uniform", "simd_rng_uniform",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(rng_uniform)
        (a);
      },
      {.alias = {-1, 0, -1, -1}});
  add(r, "rng_normal", "simd_rng_normal",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(rng_normal)
        (a);
      },
      {.alias = {-1, 0, -1, -1}});
  add(r, "dropout", "simd_dropout",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(dropout)
        (a);
      },
      {.alias = {0, -1, 1, -1}});
  r.add("rng_permutation", KernelTier::Simd, Kernel{.name = "simd_rng_permutation", .run = [](const KernelArgs& a) {
                                                      HWY_DYNAMIC_DISPATCH(rng_permutation)
                                                      (a);
                                                    }});
}

}  // namespace mge::simd_nn
#endif
