#include "kernel/simd/conv/conv2d_weights.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernel/each_target.h"

namespace mge::simd {
namespace {

struct Size {
  int64_t outs, channels, taps;
};
const Size kSizes[] = {{16, 16, 1}, {16, 32, 9}, {40, 35, 9}, {7, 100, 4}, {33, 64, 25}};

std::vector<float> counted(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 1.f);
  return v;
}

TEST(ConvWeights, InputBlocksHoldEveryWeightAndZerosAfterTheLastChannel) {
  each_target([] {
    for (const Size s : kSizes)
      for (const int64_t block : {16, 32, 64}) {
        const auto w = counted(s.outs * s.channels * s.taps);
        const int64_t blocks = (s.channels + block - 1) / block, tap = s.outs * block;
        std::vector<float> packed(static_cast<size_t>(blocks * s.taps * tap), -1.f);
        pack_input_blocks({s.outs, s.channels, s.taps, block, s.taps * tap, tap, block}, w.data(), packed.data());
        for (int64_t c = 0; c < blocks * block; ++c)
          for (int64_t t = 0; t < s.taps; ++t)
            for (int64_t o = 0; o < s.outs; ++o) {
              const float want = c < s.channels ? w[(o * s.channels + c) * s.taps + t] : 0.f;
              ASSERT_EQ(packed[c / block * s.taps * tap + t * tap + o * block + c % block], want)
                  << "o " << o << " c " << c << " t " << t << " block " << block;
            }
      }
  });
}

TEST(ConvWeights, SquareBlocksAreUnpacked) {
  each_target([] {
    for (const Size s : kSizes) {
      const int64_t across = (s.channels + 15) / 16, down = (s.outs + 15) / 16, step = s.taps * 256;
      const auto src = counted(down * across * step);
      std::vector<float> w(static_cast<size_t>(s.outs * s.channels * s.taps), -1.f);
      unpack_square_blocks({s.outs, s.channels, s.taps, across * step, step, 256}, src.data(), w.data());
      for (int64_t o = 0; o < s.outs; ++o)
        for (int64_t c = 0; c < s.channels; ++c)
          for (int64_t t = 0; t < s.taps; ++t)
            ASSERT_EQ(w[(o * s.channels + c) * s.taps + t],
                      src[o / 16 * across * step + c / 16 * step + t * 256 + c % 16 * 16 + o % 16])
                << "o " << o << " c " << c << " t " << t;
    }
  });
}

}  // namespace
}  // namespace mge::simd
