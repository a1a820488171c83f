#include "kernel/simd/matmul/gemm.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernel/each_target.h"

namespace mge::simd {
namespace {

struct Case {
  int64_t m, n, k;
};

std::vector<float> uniform(int64_t size, unsigned seed) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> dist(-1.f, 1.f);
  std::vector<float> v(static_cast<size_t>(size));
  for (float& x : v) x = dist(gen);
  return v;
}

class Sgemm : public testing::TestWithParam<Case> {
 protected:
  void TearDown() override { set_num_threads(1); }
};

TEST_P(Sgemm, MatchesFloat64AndIsTheSameForAnyThreadCount) {
  each_target([&] {
    const auto [m, n, k] = GetParam();
    for (int mode = 0; mode < 8; ++mode) {
      const bool ta = mode & 1, tb = mode & 2, accumulate = mode & 4;
      const int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
      const auto a = uniform((ta ? k : m) * lda, 1), b = uniform((tb ? n : k) * ldb, 2), c0 = uniform(m * ldc, 3);
      std::vector<float> first;
      for (int threads = 1; threads <= 3; ++threads) {
        set_num_threads(threads);
        auto c = c0;
        sgemm(ta, tb, m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, accumulate);
        if (threads > 1) {
          ASSERT_EQ(c, first) << "threads " << threads << " mode " << mode;
          continue;
        }
        first = c;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = accumulate ? c0[i * ldc + j] : 0.0, size = std::abs(sum);
            for (int64_t p = 0; p < k; ++p) {
              const double t =
                  static_cast<double>(ta ? a[p * lda + i] : a[i * lda + p]) * (tb ? b[j * ldb + p] : b[p * ldb + j]);
              sum += t;
              size += std::abs(t);
            }
            ASSERT_NEAR(c[i * ldc + j], sum, 1e-6 * size + 1e-30) << i << "," << j << " mode " << mode;
          }
          for (int64_t j = n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], c0[i * ldc + j]) << "wrote past row " << i;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Sgemm,
                         testing::Values(Case{1, 1, 1}, Case{3, 5, 0}, Case{0, 5, 3}, Case{5, 0, 3}, Case{1, 33, 7},
                                         Case{33, 1, 7}, Case{14, 32, 16}, Case{15, 31, 17}, Case{13, 48, 1},
                                         Case{6, 784, 25}, Case{16, 100, 150}, Case{150, 100, 16}, Case{64, 10, 84},
                                         Case{64, 120, 400}, Case{29, 65, 401}, Case{7, 9, 1203}, Case{230, 70, 50},
                                         Case{40, 1100, 30}, Case{100, 130, 500}, Case{1, 1100, 37}, Case{2, 67, 1203},
                                         Case{3, 513, 70}, Case{4, 49, 530}),
                         [](const auto& info) {
                           return std::to_string(info.param.m) + "x" + std::to_string(info.param.n) + "x" +
                                  std::to_string(info.param.k);
                         });

// An element's sum does not depend on which other rows and columns are computed beside it.
TEST(SgemmOrder, DependsOnKAlone) {
  each_target([&] {
    const int64_t m = 45, n = 77, k = 611;
    const auto a = uniform(m * k, 1), b = uniform(k * n, 2);
    std::vector<float> whole(m * n), part(1);
    sgemm(false, false, m, n, k, a.data(), k, b.data(), n, whole.data(), n, false);
    for (int64_t i = 0; i < m; i += 4)
      for (int64_t j = 0; j < n; j += 5) {
        sgemm(false, false, 1, 1, k, a.data() + i * k, k, b.data() + j, n, part.data(), 1, false);
        ASSERT_EQ(part[0], whole[i * n + j]) << i << "," << j;
      }
  });
}

// Up to four rows have code of their own; their bits are those of the same rows in a larger product.
TEST(SgemmOrder, FewRowsEqualTheRowsOfALargerProduct) {
  each_target([&] {
    const int64_t m = 20, n = 611, k = 1203;
    const auto a = uniform(m * k, 1), b = uniform(k * n, 2);
    for (bool tb : {false, true}) {
      const int64_t ldb = tb ? k : n;
      std::vector<float> whole(m * n);
      sgemm(false, tb, m, n, k, a.data(), k, b.data(), ldb, whole.data(), n, false);
      for (int64_t rows = 1; rows <= 4; ++rows) {
        std::vector<float> part(rows * n);
        sgemm(false, tb, rows, n, k, a.data() + 5 * k, k, b.data(), ldb, part.data(), n, false);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 5 * n)) << "rows " << rows << " tb " << tb;
      }
    }
  });
}

// A transposed b with few rows is computed as the transpose of a product, and operands are packed in several ways.
TEST(SgemmOrder, TransposedOperandsHaveTheBitsOfPlainOnes) {
  each_target([&] {
    for (const Case s :
         {Case{5, 40, 33}, Case{17, 300, 530}, Case{33, 35, 16}, Case{70, 200, 1203}, Case{300, 310, 40}}) {
      const auto a = uniform(s.m * s.k, 1), b = uniform(s.k * s.n, 2), bias = uniform(s.n, 3),
                 c0 = uniform(s.m * s.n, 4);
      std::vector<float> at(a.size()), bt(b.size());
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t p = 0; p < s.k; ++p) at[p * s.m + i] = a[i * s.k + p];
      for (int64_t p = 0; p < s.k; ++p)
        for (int64_t j = 0; j < s.n; ++j) bt[j * s.k + p] = b[p * s.n + j];
      auto want = c0;
      sgemm(false, false, s.m, s.n, s.k, a.data(), s.k, b.data(), s.n, want.data(), s.n, true, bias.data());
      for (int mode = 1; mode < 4; ++mode) {
        const bool ta = mode & 1, tb = mode & 2;
        auto got = c0;
        sgemm(ta, tb, s.m, s.n, s.k, ta ? at.data() : a.data(), ta ? s.m : s.k, tb ? bt.data() : b.data(),
              tb ? s.k : s.n, got.data(), s.n, true, bias.data());
        ASSERT_EQ(got, want) << s.m << "x" << s.n << "x" << s.k << " mode " << mode;
      }
    }
  });
}

// b packed once, by a row and by several.
TEST(SgemmOrder, PackedOperandsHaveTheBitsOfOthers) {
  each_target([&] {
    for (const Case s : {Case{1, 1000, 1280}, Case{1, 37, 16}, Case{1, 129, 530}, Case{1, 7, 3}, Case{3, 200, 600}}) {
      const auto a = uniform(s.m * s.k, 1), b = uniform(s.k * s.n, 2), bias = uniform(s.n, 3);
      std::vector<float> packed(static_cast<size_t>(packed_floats(s.n, s.k)) + 16), want(s.m * s.n), got(s.m * s.n);
      float* aligned = packed.data();
      while (reinterpret_cast<uintptr_t>(aligned) % 64) ++aligned;
      for (bool tb : {false, true}) {
        sgemm(false, tb, s.m, s.n, s.k, a.data(), s.k, b.data(), tb ? s.k : s.n, want.data(), s.n, false, bias.data());
        pack_b(tb, s.n, s.k, b.data(), tb ? s.k : s.n, aligned);
        for (int threads : {1, 2, 3}) {
          set_num_threads(threads);
          sgemm_packed(false, s.m, s.n, s.k, a.data(), s.k, aligned, got.data(), s.n, bias.data());
          ASSERT_EQ(got, want) << s.m << "x" << s.n << "x" << s.k << " tb " << tb << " threads " << threads;
        }
        set_num_threads(1);
      }
    }
  });
}

// Blocks whose shared operand is packed once by each thread, straight and turned, with ends that fill no tile.
TEST(Sgemm, HasTheBitsOfOneThreadOnMany) {
  each_target([&] {
    for (const Case s : {Case{300, 301, 70}, Case{129, 700, 611}, Case{1000, 130, 33}, Case{67, 2000, 130}}) {
      const auto a = uniform(s.m * s.k, 1), b = uniform(s.k * s.n, 2), bias = uniform(s.n, 3),
                 c = uniform(s.m * s.n, 4);
      for (int mode = 0; mode < 8; ++mode) {
        const bool ta = mode & 1, tb = mode & 2, accumulate = mode & 4;
        auto run = [&](int threads) {
          set_num_threads(threads);
          auto out = c;
          sgemm(ta, tb, s.m, s.n, s.k, a.data(), ta ? s.m : s.k, b.data(), tb ? s.k : s.n, out.data(), s.n, accumulate,
                accumulate ? bias.data() : nullptr);
          set_num_threads(1);
          return out;
        };
        const auto want = run(1);
        for (int threads : {4, 5, 16, 64})
          ASSERT_EQ(run(threads), want) << s.m << "x" << s.n << "x" << s.k << " mode " << mode << " on " << threads;
      }
    }
  });
}

TEST(SgemmBatched, EqualsSingleProductsForAnyThreadCount) {
  each_target([&] {
    for (const int64_t batch : {0, 1, 3, 40}) {
      for (const Case s : {Case{20, 30, 40}, Case{90, 110, 70}}) {
        const auto a = uniform(batch * s.m * s.k + 1, 1), b = uniform(s.k * s.n, 2);
        std::vector<float> want(batch * s.m * s.n + 1), got(want.size());
        for (int64_t i = 0; i < batch; ++i)
          sgemm(false, false, s.m, s.n, s.k, a.data() + i * s.m * s.k, s.k, b.data(), s.n, want.data() + i * s.m * s.n,
                s.n, false);
        for (int threads = 1; threads <= 3; ++threads) {
          set_num_threads(threads);
          std::fill(got.begin(), got.end(), 0.f);
          sgemm_batched(batch, false, false, s.m, s.n, s.k, a.data(), s.k, s.m * s.k, b.data(), s.n, 0, got.data(), s.n,
                        s.m * s.n, false);
          ASSERT_EQ(got, want) << "batch " << batch << " threads " << threads;
        }
        set_num_threads(1);
      }
    }
  });
}

}  // namespace
}  // namespace mge::simd
