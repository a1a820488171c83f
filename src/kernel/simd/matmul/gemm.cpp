#include "kernel/simd/matmul/gemm.h"

#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#ifndef MGE_GEMM_ONCE
#define MGE_GEMM_ONCE
namespace mge::simd {
// Columns of a packed B: whole vectors of the widest target, so that every block of k starts aligned.
inline int64_t packed_pitch(int64_t n) { return (n + 15) / 16 * 16; }
}  // namespace mge::simd
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/matmul/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_few_rows-inl.h"
#include "kernel/simd/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Rows and columns of C worked on at a time (cache blocking, loop tiling): a small block of A leaves L2 to B.
constexpr int64_t kMC = 4 * kMR;
constexpr int64_t kNC = 32 * kNR;
constexpr int64_t kTurned = (kMR + kLanes - 1) / kLanes * kLanes;  // a row of a transposed tile
constexpr int64_t kFewNC = 8 * kNR;

// Each row of C[m,n] += bias.
void add_bias(int64_t m, int64_t n, const float* bias, float* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) add_n(bias, n, c + i * ldc);
}

// One thread's share of a product that is not of few rows.
template <bool ta>
void multiply(bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc, bool accumulate, const float* bias) {
  constexpr RowsAre kRows = ta ? RowsAre::Across : RowsAre::Lines;
  const int64_t kc_max = k_block(k);
  // Reading in place saves the packing pass; packing saves cache conflicts and pages when the operand is read often.
  const bool a_in_place = ta && (n <= kNR || m <= kMR);
  const bool b_in_place = !tb && (m <= 2 * kMR || (k <= 128 && n <= 512 && m <= 8 * kMR));
  // Few rows: all of A stays in L2 beside a narrow block of B. Many: a wide block of B, and A comes by once for each.
  const bool few = m * kc_max * int64_t{sizeof(float)} <= machine().l2 * 5 / 16;
  const int64_t mc_max = few ? m : kMC, nc_max = few ? kFewNC : kNC;
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    const bool add = accumulate || pc > 0;
    for (int64_t jc = 0; jc < n; jc += nc_max) {
      const int64_t nc = std::min(nc_max, n - jc);
      const float* b_block = tb ? b + jc * ldb + pc : b + pc * ldb + jc;
      float* packed_b = b_in_place ? nullptr : scratch(Scratch::PackB, kc * (nc + kLanes));
      if (tb) pack_columns(tb, b_block, ldb, nc, kc, packed_b);
      for (int64_t ic = 0; ic < m; ic += mc_max) {
        const int64_t mc = std::min(mc_max, m - ic);
        const float* a_block = ta ? a + pc * lda + ic : a + ic * lda + pc;
        const Operand bo = b_in_place ? Operand{b_block, ldb} : Operand{packed_b, 0};
        float* c_block = c + ic * ldc + jc;
        float* packed_a = a_in_place ? nullptr : scratch(Scratch::PackA, whole_lines(kc) * mc + kLanes);
        const bool packs_b = packed_b && !tb && ic == 0;
        if (ta && packed_a && !few && !packs_b) {
          multiply_block_packing_rows(mc, nc, kc, a_block, lda, packed_a, bo, c_block, ldc, add);
        } else {
          if (packed_a && (!few || jc == 0)) (ta ? pack_rows_straight : pack_lines)(a_block, lda, mc, kc, packed_a);
          const Operand ao = packed_a ? Operand{packed_a, 0} : Operand{a_block, lda};
          if (packs_b)
            multiply_block_packing<kRows>(mc, nc, kc, ao, b_block, ldb, packed_b, c_block, ldc, add);
          else
            multiply_block<kRows>(mc, nc, kc, ao, bo, c_block, ldc, add);
        }
        if (bias && pc + kc == k) add_bias(mc, nc, bias + jc, c_block, ldc);
      }
    }
  }
}

// C[cols][mr] = (C if add) + the transpose of t[mr][kNR], then + bias if there is one.
void store_turned(const float* t, int64_t mr, int64_t cols, float* c, int64_t ldc, bool add, const float* bias) {
  HWY_ALIGN float turned[kNR * kTurned];
  transpose(t, kNR, mr, cols, turned, kTurned);
  for (int64_t j = 0; j < cols; ++j) {
    float* HWY_RESTRICT row = turned + j * kTurned;
    if (add) add_n(c + j * ldc, mr, row);
    if (bias) add_n(bias, mr, row);
    copy_n(row, mr, c + j * ldc);
  }
}

// A·Bᵀ as the transpose of B·Aᵀ: rows of B are copied as they lie and the smaller A is turned around instead. The bits
// are the same, since every element is the same chain of multiply-adds.
void multiply_turned(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                     float* c, int64_t ldc, bool accumulate, const float* bias) {
  const int64_t kc_max = k_block(k);
  const RowTiles rows(n);
  HWY_ALIGN float t[kMR * kNR];
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    const bool add = accumulate || pc > 0;
    for (int64_t ic = 0; ic < m; ic += kFewNC) {
      const int64_t mc = std::min(kFewNC, m - ic);
      float* columns = scratch(Scratch::PackB, kc * (mc + kLanes));
      pack_columns(true, a + ic * lda + pc, lda, mc, kc, columns);
      float* lines = scratch(Scratch::PackA, whole_lines(kc) * kMR);
      for (int64_t r = 0; r < rows.count; ++r) {
        const int64_t i = rows.begin(r), mr = rows.begin(r + 1) - i;
        for (int64_t j = 0; j < mc; j += kNR) {
          const int64_t cols = std::min<int64_t>(kNR, mc - j);
          const float* panel = columns + j * kc;
          const int64_t ps = panel_stride(mc, j);
          if (j == 0)
            multiply_tile<RowsAre::Lines, Packs::A>(mr, cols, kc, b + i * ldb + pc, ldb, panel, ps, t, kNR, false,
                                                    lines);
          else
            multiply_tile<RowsAre::Lines>(mr, cols, kc, lines, 0, panel, ps, t, kNR, false);
          store_turned(t, mr, cols, c + (ic + j) * ldc + i, ldc, add, bias && pc + kc == k ? bias + i : nullptr);
        }
      }
    }
  }
}

// One thread's share: C[m,n] (+)= op(A)·op(B), then + bias if there is one.
void sgemm_serial(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                  int64_t ldb, float* c, int64_t ldc, bool accumulate, const float* bias) {
  if (few_rows(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, accumulate)) {
    if (bias) add_bias(m, n, bias, c, ldc);
  } else if (!ta && tb && m < n && m <= kFewNC) {
    multiply_turned(m, n, k, a, lda, b, ldb, c, ldc, accumulate, bias);
  } else {
    (ta ? multiply<true> : multiply<false>)(tb, m, n, k, a, lda, b, ldb, c, ldc, accumulate, bias);
  }
}

// Columns [j, j + nc) of a packed B, j a multiple of kNR. Blocks of k lie one after the other.
void pack_serial(bool tb, int64_t n, int64_t k, const float* b, int64_t ldb, int64_t j, int64_t nc, float* packed) {
  const int64_t kc_max = k_block(k);
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    pack_columns(tb, tb ? b + j * ldb + pc : b + pc * ldb + j, ldb, nc, kc, packed + pc * packed_pitch(n) + j * kc);
  }
}
// Columns outside: B, which may be larger than the cache, goes by once, and few rows of A stay.
void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* packed, int64_t j,
                     int64_t nc, float* c, int64_t ldc) {
  const int64_t kc_max = k_block(k);
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    for (int64_t ic = 0; ic < m; ic += kMC) {
      const int64_t mc = std::min(kMC, m - ic);
      float* rows = scratch(Scratch::PackA, whole_lines(kc) * mc + kLanes);
      pack_lines(a + ic * lda + pc, lda, mc, kc, rows);
      for (int64_t jc = j; jc < j + nc; jc += kNR)
        multiply_block<RowsAre::Lines>(mc, std::min<int64_t>(kNR, j + nc - jc), kc, {rows, 0},
                                       {packed + pc * packed_pitch(n) + jc * kc, 0}, c + ic * ldc + jc, ldc, pc > 0);
    }
  }
}

// Lanes and tile rows of the compiled target, for cutting C between threads.
void tile_shape(int64_t* rows, int64_t* cols) {
  *rows = kMR;
  *cols = kNR;
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(sgemm_serial);
HWY_EXPORT(pack_serial);
HWY_EXPORT(multiply_packed);
HWY_EXPORT(tile_shape);

struct Grid {
  int64_t rows, cols;  // pieces of C
};

// Pieces for `parts` threads with the least operand traffic, no piece smaller than a tile.
Grid choose_grid(int64_t m, int64_t n, int64_t parts) {
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  const int64_t max_rows = std::max<int64_t>(1, m / mr), max_cols = std::max<int64_t>(1, n / nr);
  Grid best{1, 1};
  double best_cost = 1e300;
  for (int64_t r = 1; r <= std::min(parts, max_rows); ++r) {
    const int64_t c = std::min(parts / r, max_cols);
    // Time of the largest piece, then what each piece has to read.
    const double cost = static_cast<double>(m) / r * (static_cast<double>(n) / c) * 1e3 + static_cast<double>(m) / r +
                        static_cast<double>(n) / c;
    if (cost < best_cost) best_cost = cost, best = {r, c};
  }
  return best;
}

int64_t cut(int64_t size, int64_t i, int64_t pieces, int64_t unit) {
  const int64_t units = (size + unit - 1) / unit;
  return std::min(size, units * i / pieces * unit);
}

}  // namespace

void sgemm_batched(int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   int64_t stride_a, const float* b, int64_t ldb, int64_t stride_b, float* c, int64_t ldc,
                   int64_t stride_c, bool accumulate, const float* bias) {
  if (batch <= 0 || m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t r = 0; r < m; ++r) {
        float* row = c + i * stride_c + r * ldc;
        if (!accumulate) std::fill_n(row, n, 0.f);
        for (int64_t j = 0; bias && j < n; ++j) row[j] += bias[j];
      }
    return;
  }
  const auto serial = HWY_DYNAMIC_DISPATCH(sgemm_serial);
  const int64_t threads = num_threads();
  // Each piece packs what it reads, so there are no more than there is work for.
  const double work = costs().fma * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const double worth = work * static_cast<double>(batch) / std::max(costs().piece, 1e-3);
  if (threads == 1 || worth < 2) {
    for (int64_t i = 0; i < batch; ++i)
      serial(ta, tb, m, n, k, a + i * stride_a, lda, b + i * stride_b, ldb, c + i * stride_c, ldc, accumulate, bias);
    return;
  }
  Grid grid{1, 1};
  if (batch < 4 * threads) {
    const int64_t wanted = batch == 1 ? threads : 4 * threads;
    grid = choose_grid(m, n, (static_cast<int64_t>(std::min(worth, static_cast<double>(wanted))) + batch - 1) / batch);
  }
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  const int64_t pieces = grid.rows * grid.cols;
  parallel_for(batch * pieces, grain_of(work / static_cast<double>(pieces)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / pieces, r = t % pieces / grid.cols, s = t % grid.cols;
      const int64_t i0 = cut(m, r, grid.rows, 1), i1 = cut(m, r + 1, grid.rows, 1);
      const int64_t j0 = cut(n, s, grid.cols, 16), j1 = cut(n, s + 1, grid.cols, 16);
      const float* ai = a + i * stride_a + (ta ? i0 : i0 * lda);
      const float* bi = b + i * stride_b + (tb ? j0 * ldb : j0);
      serial(ta, tb, i1 - i0, j1 - j0, k, ai, lda, bi, ldb, c + i * stride_c + i0 * ldc + j0, ldc, accumulate,
             bias ? bias + j0 : nullptr);
    }
  });
}

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
           float* c, int64_t ldc, bool accumulate, const float* bias) {
  sgemm_batched(1, ta, tb, m, n, k, a, lda, 0, b, ldb, 0, c, ldc, 0, accumulate, bias);
}

int64_t packed_floats(int64_t n, int64_t k) { return k * packed_pitch(n); }

namespace {
// f(first column, columns) in parallel over whole tiles of columns.
template <class F>
void each_columns(int64_t n, int64_t work_per_column, F f) {
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  const int64_t tiles = (n + nr - 1) / nr;
  parallel_for(tiles, fma_grain(work_per_column * nr),
               [&](int64_t b, int64_t e) { f(b * nr, std::min(n, e * nr) - b * nr); });
}
}  // namespace

void sgemm_pack(bool tb, int64_t n, int64_t k, const float* b, int64_t ldb, float* packed) {
  each_columns(n, 4 * k, [&](int64_t j, int64_t nc) {
    HWY_DYNAMIC_DISPATCH(pack_serial)(tb, n, k, b, ldb, j, nc, packed);
  });
}

void sgemm_packed(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* packed, float* c,
                  int64_t ldc) {
  each_columns(n, m * k, [&](int64_t j, int64_t nc) {
    HWY_DYNAMIC_DISPATCH(multiply_packed)(m, n, k, a, lda, packed, j, nc, c, ldc);
  });
}

}  // namespace mge::simd
#endif
