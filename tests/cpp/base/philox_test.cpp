// Philox 4x32-10 against the known answers of Random123 (kat_vectors), and the uniform numbers made from it.
#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace mge {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Philox, KnownAnswerZero) { EXPECT_EQ(Philox{0}(0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8})); }

// Our generator fixes the upper half of the counter at 0, so of the published vectors only the first fits. This is the
// same algorithm written out as in the paper, and it must also reproduce the vectors that use all four counter words.
Block paper_philox(Block c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    if (round) k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return c;
}
TEST(Philox, AgreesWithThePaperOnRandomCounters) {
  EXPECT_EQ(paper_philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(paper_philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  uint64_t x = 88172645463325252ull;
  auto next = [&] { return x ^= x << 13, x ^= x >> 7, x ^= x << 17; };
  for (int i = 0; i < 1000; ++i) {
    uint64_t seed = next(), counter = next();
    Block want = paper_philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                              static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    ASSERT_EQ(Philox{seed}(counter), want) << seed << " " << counter;
  }
}

TEST(Philox, CountersAndSeedsGiveDistinctBlocks) {
  std::set<Block> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (uint64_t counter = 0; counter < 200; ++counter) seen.insert(Philox{seed}(counter));
  EXPECT_EQ(seen.size(), 4000u);
  EXPECT_NE(Philox{0}(1), Philox{0}(1ull << 32)) << "the high counter word must count";
  EXPECT_NE(Philox{1}(0), Philox{1ull << 32}(0)) << "the high seed word must count";
}

TEST(Philox, UniformIsHalfOpenAtZero) {
  EXPECT_EQ(philox_uniform(0), 0x1p-24f);  // never 0: log() of it is finite
  EXPECT_EQ(philox_uniform(~0u), 1.0f);
  EXPECT_EQ(philox_uniform(0x80000000u), 0.5f + 0x1p-24f);
}

TEST(Philox, UniformHasTheRightMoments) {
  double sum = 0, square = 0;
  int n = 0;
  for (uint64_t c = 0; c < 25000; ++c)
    for (uint32_t bits : Philox{42}(c)) {
      double u = philox_uniform(bits);
      sum += u;
      square += u * u;
      ++n;
    }
  double mean = sum / n, variance = square / n - mean * mean;
  EXPECT_NEAR(mean, 0.5, 0.005);
  EXPECT_NEAR(variance, 1.0 / 12, 0.002);
}

}  // namespace
}  // namespace mge
