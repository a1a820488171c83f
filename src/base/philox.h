// Philox 4x32-10 (Salmon et al., SC'11): random numbers as a function of (seed, counter), so any split of the work and
// any thread count gives the same stream (a counter-based generator).
#pragma once
#include <array>
#include <cstdint>

namespace mge {

struct Philox {
  uint64_t seed;

  std::array<uint32_t, 4> operator()(uint64_t counter) const {
    uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
      uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
      c[1] = static_cast<uint32_t>(p1);
      c[3] = static_cast<uint32_t>(p0);
      c[0] = n0;
      c[2] = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c[0], c[1], c[2], c[3]};
  }
};

/// Uniform in (0, 1], 24 bits.
inline float philox_uniform(uint32_t bits) { return (static_cast<float>(bits >> 8) + 1.0f) * 0x1p-24f; }

}  // namespace mge
