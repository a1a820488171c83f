#include "kernel/cost.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "each_target.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw.h"
#include "kernel/simd/matmul/gemm.h"
#include "on_machine.h"

namespace mge {
namespace {

using testing_kernels::OnMachine;

template <class F>
void each_geometry(F f) {
  for (int64_t n : {1, 2, 5, 16, 64})
    for (int64_t c : {1, 16, 32, 48, 64, 256, 512})
      for (int64_t o : {16, 31, 32, 64, 240, 256, 512, 1024})
        for (int64_t size : {1, 2, 7, 8, 12, 14, 15, 16, 32, 56})
          for (int64_t k : {1, 3, 5})
            for (int64_t s : {1, 2})
              for (int64_t pad : {int64_t{0}, k / 2}) {
                if (size + 2 * pad < k) continue;
                const int64_t out = conv_outputs(size, k, s, pad, 1);
                f(ConvGeom{.n = n,
                           .c = c,
                           .h = size,
                           .w = size,
                           .o = o,
                           .oh = out,
                           .ow = out,
                           .kh = k,
                           .kw = k,
                           .sh = s,
                           .sw = s,
                           .ph = pad,
                           .pw = pad});
              }
}

// The limits that were measured on the machine the model was fitted to, as plain numbers.
int64_t tiles_of(const ConvGeom& g, int64_t side) {
  return g.n * ((g.oh + side - 1) / side) * ((g.ow + side - 1) / side);
}
bool measured_winograd(const ConvGeom& g, ConvRole role) {
  if (!cost::winograd_can(g)) return false;
  return role == ConvRole::Forward ? tiles_of(g, 2) >= 16 : g.c >= 32 && g.o >= 32 && tiles_of(g, 2) >= 48;
}
bool measured_product(const ConvGeom& g, bool of_weights) {
  const int64_t pixels = g.n * g.oh * g.ow, weights = g.o * g.c * g.kh * g.kw;
  const bool strided = g.sh * g.sw > 1, one_tap = g.kh * g.kw == 1;
  if (one_tap && !strided && g.ph == 0 && g.pw == 0) return weights >= 1 << 15 && pixels <= 1 << 14;
  if (weights < 1 << 18) return false;
  if (of_weights) return pixels <= (strided ? 4096 : 1024);
  return pixels <= (strided && one_tap ? 4096 : 512);
}

// Of 3x3 layers: those of small images with many channels keep their taps, whatever the number of threads.
TEST(CostModel, LargeWeightsOfFewTilesKeepTheirTaps) {
  const OnMachine fitted({});
  auto keeps = [](int64_t n, int64_t c, int64_t size, int64_t side) {
    const ConvGeom g{
        .n = n, .c = c, .h = size, .w = size, .o = c, .oh = size, .ow = size, .kh = 3, .kw = 3, .ph = 1, .pw = 1};
    return cost::winograd_keeps_taps(g, side);
  };
  EXPECT_TRUE(keeps(1, 256, 14, 4));
  EXPECT_TRUE(keeps(1, 512, 7, 2));
  EXPECT_TRUE(keeps(1, 128, 28, 4));
  EXPECT_FALSE(keeps(8, 256, 14, 4)) << "tiles in blocks";
  EXPECT_FALSE(keeps(1, 256, 56, 4)) << "tiles in blocks";
  EXPECT_FALSE(keeps(1, 64, 14, 4)) << "points stay in the second cache";
}

TEST(CostModel, GivesTheMeasuredChoicesOnTheMachineItWasFittedTo) {
  const OnMachine fitted({});
  int tiles = 0, products = 0;
  each_geometry([&](const ConvGeom& g) {
    for (ConvRole role : {ConvRole::Forward, ConvRole::InputGrad, ConvRole::WeightGrad})
      ASSERT_EQ(cost::winograd_pays(g, role), measured_winograd(g, role))
          << g.n << " " << g.c << " " << g.o << " " << g.h << " " << static_cast<int>(role);
    ASSERT_EQ(cost::winograd4_pays(g), cost::winograd_can(g) && tiles_of(g, 4) >= 16)
        << g.n << " " << g.c << " " << g.h;
    ASSERT_EQ(cost::product_pays(g, ConvRole::InputGrad), measured_product(g, false))
        << g.n << " " << g.c << " " << g.o;
    ASSERT_EQ(cost::product_pays(g, ConvRole::WeightGrad), measured_product(g, true))
        << g.n << " " << g.c << " " << g.o;
    tiles += cost::winograd_pays(g, ConvRole::InputGrad), products += cost::product_pays(g, ConvRole::WeightGrad);
  });
  EXPECT_GT(tiles, 100);
  EXPECT_GT(products, 100);
  for (double flops : {1e5, 1999998., 2e6, 4e6, 19999998., 2e7, 1e9}) {
    EXPECT_EQ(cost::library_pays(flops, 1), flops >= 2e6);
    EXPECT_EQ(cost::library_pays(flops, 0.1), flops >= 2e7);
  }
  for (int64_t m : {1, 4, 5, 12, 13, 64, 65, 255, 256})
    for (double flops : {1e6, 3999998., 4e6, 31999998., 32e6, 1e9})
      EXPECT_EQ(cost::library_pays_for_rows(m, flops), m >= 5 && m <= 12 && flops >= 4e6) << m << " " << flops;
}

ConvGeom square(int64_t n, int64_t c, int64_t size, int64_t k) {
  return {
      .n = n, .c = c, .h = size, .w = size, .o = c, .oh = size, .ow = size, .kh = k, .kw = k, .ph = k / 2, .pw = k / 2};
}

TEST(CostModel, FollowsTheConstants) {
  const ConvGeom few = square(1, 64, 14, 3), less = square(1, 256, 12, 3), weights = square(16, 512, 8, 3);
  {
    const OnMachine fitted({});
    EXPECT_TRUE(cost::winograd_pays(few, ConvRole::InputGrad));      // 49 tiles of at least 48
    EXPECT_FALSE(cost::winograd_pays(less, ConvRole::InputGrad));    // 36
    EXPECT_TRUE(cost::product_pays(weights, ConvRole::WeightGrad));  // 1024 pixels of at most 1024
    EXPECT_TRUE(cost::library_pays(3e6, 1));
  }
  // Faster arithmetic on the same memory: saved products are worth less, reordered weights cost more.
  {
    const OnMachine fast({.gflops = 200});
    EXPECT_FALSE(cost::winograd_pays(few, ConvRole::InputGrad));
    EXPECT_TRUE(cost::winograd_pays(square(4, 64, 14, 3), ConvRole::InputGrad));
    EXPECT_TRUE(cost::product_pays(square(2, 512, 16, 3), ConvRole::InputGrad));  // 512 pixels, of at most 1024 now
    EXPECT_TRUE(cost::product_pays(square(4, 512, 16, 3), ConvRole::InputGrad));
    EXPECT_FALSE(cost::library_pays(3e6, 1));
  }
  // Faster memory: the other way round.
  {
    const OnMachine wide({.gbytes = 12.5});
    EXPECT_TRUE(cost::winograd_pays(square(1, 64, 10, 3), ConvRole::InputGrad));
    EXPECT_TRUE(cost::winograd_pays(square(1, 256, 16, 3), ConvRole::InputGrad));
    EXPECT_FALSE(cost::product_pays(weights, ConvRole::WeightGrad));
  }
  // A larger second cache keeps more weights as they are.
  {
    const OnMachine large({.l2 = 16 << 20});
    EXPECT_FALSE(cost::product_pays(weights, ConvRole::WeightGrad));
  }
  // However fast the memory is not: a sum does not get longer than its digits allow.
  {
    const OnMachine slow({.gbytes = 0.1});
    EXPECT_FALSE(cost::product_pays(square(64, 512, 8, 3), ConvRole::WeightGrad));
    EXPECT_TRUE(cost::product_pays(square(64, 512, 8, 3), ConvRole::InputGrad));
  }
}

std::vector<float> uniform(int64_t size) {
  std::mt19937 gen(7);
  std::uniform_real_distribution<float> dist(-1, 1);
  std::vector<float> v(static_cast<size_t>(size));
  for (float& x : v) x = dist(gen);
  return v;
}

// Choices between kernels may change bits. How large the pieces are that a kernel keeps in the cache may not.
TEST(CostModel, CachesChangeNoBitOfAKernel) {
  const int64_t m = 200, n = 300, k = 700;
  const auto a = uniform(m * k), b = uniform(n * k);
  const ConvGeom tiles = square(2, 32, 30, 3), plain = square(2, 20, 33, 3),
                 rows{.n = 2, .c = 3, .h = 40, .w = 60, .o = 5, .oh = 40, .ow = 60};
  const ConvGeom depth{
      .n = 2, .c = 48, .h = 40, .w = 30, .o = 48, .oh = 40, .ow = 30, .kh = 3, .kw = 3, .ph = 1, .pw = 1, .groups = 48};
  const ConvGeom pixels = square(1, 24, 57, 1);
  auto all = [&] {
    std::vector<std::vector<float>> out;
    auto add = [&](int64_t size, auto f) { f(out.emplace_back(static_cast<size_t>(size)).data()); };
    add(m * n, [&](float* c) { simd::sgemm(false, false, m, n, k, a.data(), k, b.data(), n, c, n, false); });
    add(m * n, [&](float* c) { simd::sgemm(true, true, m, n, k, a.data(), m, b.data(), k, c, n, false); });
    for (const ConvGeom& g : {tiles, plain, rows, depth, pixels}) {
      const auto x = uniform(g.n * g.c * g.h * g.w), w = uniform(g.o * g.c / g.groups * g.kh * g.kw);
      const int64_t y = g.n * g.o * g.oh * g.ow;
      add(y, [&](float* to) { simd::conv2d_fwd(g, x.data(), w.data(), to, nullptr); });
      if (g == tiles) add(y, [&](float* to) { simd::winograd_last_fwd(g, x.data(), w.data(), to); });
      if (g == depth) {
        const auto dy = uniform(y);
        add(g.c * 9, [&](float* to) { simd::depthwise_last_bwd_weight(g, x.data(), dy.data(), to); });
      }
    }
    return out;
  };
  simd::each_target([&] {
    const auto want = all();
    for (int64_t l2 : {32 << 10, 256 << 10, 4 << 20}) {
      const OnMachine other({.l2 = l2});
      const auto got = all();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(0, std::memcmp(want[i].data(), got[i].data(), want[i].size() * sizeof(float))) << i << " l2 " << l2;
    }
  });
}

TEST(Cost, RowsOfARecurrence) {
  EXPECT_EQ(cost::recurrence_rows(64, 0, 4), 4);  // no weights at all
  for (int64_t batch : {0, 1, 7, 8, 64, 4096})
    for (int64_t bytes : {int64_t{0}, int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 34})
      for (int64_t parts : {1, 2, 16, 128}) {
        const int64_t rows = cost::recurrence_rows(batch, bytes, parts);
        EXPECT_GE(rows, 1);
        EXPECT_LE(rows, std::max<int64_t>(1, std::min(batch, parts)));
      }
}

}  // namespace
}  // namespace mge
