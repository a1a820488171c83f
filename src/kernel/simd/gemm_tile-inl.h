// The inside of a matrix product, once per instruction set: packing, the register tile, and one k-block of C.
// Included by gemm.cpp and conv2d_raw*.cpp after foreach_target.
//
// Operand layout of the tile: A is [k][rows of the tile], B is [k][kNR columns]; both may be read in place from a
// matrix that already runs that way (a transposed A, a plain B), because the tile takes the distance between two k as
// an argument.
#if defined(MGE_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_GEMM_TILE_INL_H_
#undef MGE_GEMM_TILE_INL_H_
#else
#define MGE_GEMM_TILE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernel/simd/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

constexpr int kNV = 2;  // vectors per tile row
constexpr int kNR = kNV * kLanes;
// Rows per tile: kMR * kNV accumulators, kNV vectors of B and one broadcast of A fill the register file.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kMR = 14;
#elif HWY_TARGET == HWY_NEON
constexpr int kMR = 12;
#else
constexpr int kMR = 6;
#endif
// k-blocks: equal, at most kMaxKC; a function of k alone because it fixes the order of summation (see gemm.h).
constexpr int64_t kMaxKC = 512;
inline int64_t k_block(int64_t k) {
  const int64_t blocks = (k + kMaxKC - 1) / kMaxKC;
  return blocks <= 1 ? k : ((k + blocks - 1) / blocks + 7) / 8 * 8;
}

// C[MR][NV vectors] = (C if add) + A·B over k. `tail` lanes count in the last vector when kTail.
template <int MR, int NV, bool kTail>
void tile(int64_t k, const float* HWY_RESTRICT a, int64_t as, const float* HWY_RESTRICT b, int64_t bs,
          float* HWY_RESTRICT c, int64_t ldc, int tail, bool add) {
  const DF d;
  const MF mask = hn::FirstN(d, kTail ? tail : kLanes);
  VF acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v] = hn::Zero(d);
  for (int64_t p = 0; p < k; ++p) {
    VF bv[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v)
      bv[v] = kTail && v == NV - 1 ? load_n(mask, b + v * kLanes, tail) : hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const VF ai = hn::Set(d, a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
    }
    a += as;
    b += bs;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      float* HWY_RESTRICT dst = c + i * ldc + v * kLanes;
      if (kTail && v == NV - 1) {
        store_n(add ? hn::Add(load_n(mask, dst, tail), acc[i][v]) : acc[i][v], mask, dst, tail);
      } else {
        hn::StoreU(add ? hn::Add(hn::LoadU(d, dst), acc[i][v]) : acc[i][v], d, dst);
      }
    }
}

using TileFn = void (*)(int64_t, const float*, int64_t, const float*, int64_t, float*, int64_t, int, bool);
template <int... R>
constexpr std::array<TileFn, 4 * kMR> make_tiles(std::integer_sequence<int, R...>) {
  return {{(R % 4 == 0   ? tile<R / 4 + 1, 1, false>
            : R % 4 == 1 ? tile<R / 4 + 1, 1, true>
            : R % 4 == 2 ? tile<R / 4 + 1, 2, false>
                         : tile<R / 4 + 1, 2, true>)...}};
}
inline constexpr std::array<TileFn, 4 * kMR> kTiles = make_tiles(std::make_integer_sequence<int, 4 * kMR>());

// Rows are cut into equal tiles: 64 rows are 13+13+13+13+12, not 14*4+8.
struct RowTiles {
  int64_t m, count;
  explicit RowTiles(int64_t rows) : m(rows), count((rows + kMR - 1) / kMR) {}
  int64_t begin(int64_t i) const { return m * i / count; }
};

// dst[k][w] (row distance ds, zero up to ds) from src[w][k] (row distance ld).
inline void pack_transposed(const float* HWY_RESTRICT src, int64_t ld, int64_t w, int64_t k, float* HWY_RESTRICT dst,
                            int64_t ds) {
  transpose(src, ld, w, k, dst, ds);
  for (int64_t p = 0; p < k && w < ds; ++p)
    for (int64_t i = w; i < ds; ++i) dst[p * ds + i] = 0.f;
}

// dst[k][w] (row distance ds, zero up to ds) from src[k][w] (row distance ld).
inline void pack_straight(const float* HWY_RESTRICT src, int64_t ld, int64_t w, int64_t k, float* HWY_RESTRICT dst,
                          int64_t ds) {
  for (int64_t p = 0; p < k; ++p) {
    copy_n(src + p * ld, w, dst + p * ds);
    for (int64_t i = w; i < ds; ++i) dst[p * ds + i] = 0.f;
  }
}

// An operand of a k-block: packed (tile at first * kc, rows of `stride`) or read in place (tile at first, rows of ld).
struct Operand {
  const float* data;
  int64_t ld;  // 0: packed
};

// Columns of the panel that starts at column j, rounded up to whole vectors: the row distance of a packed panel.
inline int64_t panel_stride(int64_t n, int64_t j) {
  return std::min<int64_t>(kNR, (n - j + kLanes - 1) / kLanes * kLanes);
}

// Row tiles [t0, t1) of C[m,n] (+)= A·B over one k-block of kc; all pointers are to the whole operands.
inline void multiply_tiles(const RowTiles& rows, int64_t t0, int64_t t1, int64_t n, int64_t kc, Operand a, Operand b,
                           float* c, int64_t ldc, bool add) {
  // Rows outside: a tile of A (28 KiB) stays in L1 while B streams from L2. NOTE(perf): 1024^3 103 GFLOP/s against 95
  // the other way.
  for (int64_t t = t0; t < t1; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    const float* ap = a.ld ? a.data + i : a.data + i * kc;
    for (int64_t j = 0; j < n; j += kNR) {
      const int64_t cols = std::min<int64_t>(kNR, n - j), vecs = (cols + kLanes - 1) / kLanes;
      const int tail = static_cast<int>(cols - (vecs - 1) * kLanes);
      const float* bp = b.ld ? b.data + j : b.data + j * kc;
      const TileFn fn = kTiles[(mr - 1) * 4 + (vecs - 1) * 2 + (tail != kLanes)];
      fn(kc, ap, a.ld ? a.ld : mr, bp, b.ld ? b.ld : vecs * kLanes, c + i * ldc + j, ldc, tail, add);
    }
  }
}
inline void multiply_block(int64_t m, int64_t n, int64_t kc, Operand a, Operand b, float* c, int64_t ldc, bool add) {
  const RowTiles rows(m);
  multiply_tiles(rows, 0, rows.count, n, kc, a, b, c, ldc, add);
}

// A transposed A, read in the order of memory: a row of k is one or two cache lines, often a page from the next, where
// no hardware prefetcher follows, and the lines of different rows may fall into the same set of the cache.
inline void pack_rows_straight(const float* HWY_RESTRICT a, int64_t lda, const RowTiles& rows, int64_t kc,
                               float* HWY_RESTRICT dst) {
  constexpr int64_t kAhead = 12;
  for (int64_t p = 0; p < kc; ++p) {
    const float* HWY_RESTRICT row = a + p * lda;
    if (p + kAhead < kc)
      for (int64_t i = 0; i < rows.m + 15; i += 16) hwy::Prefetch(row + kAhead * lda + std::min(i, rows.m - 1));
    for (int64_t t = 0; t < rows.count; ++t) {
      const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
      copy_n(row + i, mr, dst + i * kc + p * mr);
    }
  }
}

inline void pack_rows(bool ta, const float* a, int64_t lda, int64_t m, int64_t kc, float* dst) {
  const RowTiles rows(m);
  if (ta) return pack_rows_straight(a, lda, rows, kc, dst);
  for (int64_t t = 0; t < rows.count; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    pack_transposed(a + i * lda, lda, mr, kc, dst + i * kc, mr);
  }
}

// Whole panels of a plain B: eight at a time, a kilobyte of each row, because a stream of short pieces far apart comes
// at a third of the memory's speed. NOTE(perf): 128x3072x768 0.89 of peak, 0.82 panel by panel, 0.84 with sixteen.
inline void pack_panels(const float* HWY_RESTRICT b, int64_t ldb, int64_t panels, int64_t kc, float* HWY_RESTRICT dst) {
  constexpr int64_t kTogether = 8, kAhead = 4;
  const DF d;
  for (int64_t j0 = 0; j0 < panels * kNR; j0 += kTogether * kNR) {
    const int64_t j1 = std::min(panels * kNR, j0 + kTogether * kNR);
    for (int64_t p = 0; p < kc; ++p) {
      const float* HWY_RESTRICT row = b + p * ldb;
      const float* HWY_RESTRICT soon = b + std::min(p + kAhead, kc - 1) * ldb;
      for (int64_t j = j0; j < j1; j += kNR)
#pragma GCC unroll 2
        for (int v = 0; v < kNV; ++v) {
          hwy::Prefetch(soon + j + v * kLanes);
          hn::Store(hn::LoadU(d, row + j + v * kLanes), d, dst + j * kc + p * kNR + v * kLanes);
        }
    }
  }
}

inline void pack_columns(bool tb, const float* b, int64_t ldb, int64_t n, int64_t kc, float* dst) {
  if (!tb) pack_panels(b, ldb, n / kNR, kc, dst);
  for (int64_t j = tb ? 0 : n - n % kNR; j < n; j += kNR) {
    const int64_t ds = panel_stride(n, j), w = std::min<int64_t>(kNR, n - j);
    if (tb) {
      pack_transposed(b + j * ldb, ldb, w, kc, dst + j * kc, ds);
    } else {
      pack_straight(b + j, ldb, w, kc, dst + j * kc, ds);
    }
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
