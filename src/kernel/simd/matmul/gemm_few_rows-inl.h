// Products with up to 4 rows of A (a vector times a matrix): B is read once, so it is not packed but streamed in the
// order it lies in. Sums are taken as in gemm_tile-inl.h, element for element: the same bits.
#if defined(MGE_GEMM_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_GEMM_FEW_ROWS_INL_H_
#undef MGE_GEMM_FEW_ROWS_INL_H_
#else
#define MGE_GEMM_FEW_ROWS_INL_H_
#endif

#include "kernel/simd/matmul/gemm_lanes-inl.h"
#include "kernel/simd/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

struct FewRows {
  int64_t n, k;
  const float* a;
  int64_t row, col;  // a's strides
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool accumulate;
};

HWY_INLINE void put(VF sum, bool add, MF m, float* HWY_RESTRICT c, int lanes) {
  if (lanes == kLanes)
    hn::StoreU(add ? hn::Add(hn::LoadU(DF(), c), sum) : sum, DF(), c);
  else
    store_n(add ? hn::Add(load_n(m, c, lanes), sum) : sum, m, c, lanes);
}

// B [k, n]: rows of B go by, four at a time, against a strip of sums in the first cache.
template <int MR>
void few_rows_plain(const FewRows& g) {
  const DF d;
  constexpr int64_t kStrip = 512;
  HWY_ALIGN float sums[MR][kStrip];
  const int64_t kc_max = k_block(g.k);
  for (int64_t j = 0; j < g.n; j += kStrip) {
    const int64_t nc = std::min(kStrip, g.n - j), full = nc - nc % kLanes;
    const MF rest = hn::FirstN(d, static_cast<size_t>(nc - full));
    for (int64_t pc = 0; pc < g.k; pc += kc_max) {
      const int64_t end = std::min(g.k, pc + kc_max);
      for (auto& s : sums) std::fill_n(s, nc, 0.f);
      int64_t p = pc;
      for (; p + 4 <= end; p += 4) {
        const float* HWY_RESTRICT b = g.b + p * g.ldb + j;
        VF a[MR][4];
        for (int i = 0; i < MR; ++i)
          for (int q = 0; q < 4; ++q) a[i][q] = hn::Set(d, g.a[i * g.row + (p + q) * g.col]);
        auto step = [&](auto load, int64_t at) HWY_ATTR {
          const VF b0 = load(b + at), b1 = load(b + g.ldb + at), b2 = load(b + 2 * g.ldb + at),
                   b3 = load(b + 3 * g.ldb + at);
#pragma GCC unroll 4
          for (int i = 0; i < MR; ++i) {
            VF s = hn::LoadU(d, sums[i] + at);
            s = hn::MulAdd(a[i][0], b0, s);
            s = hn::MulAdd(a[i][1], b1, s);
            s = hn::MulAdd(a[i][2], b2, s);
            s = hn::MulAdd(a[i][3], b3, s);
            hn::StoreU(s, d, sums[i] + at);
          }
        };
        for (int64_t x = 0; x < full; x += kLanes) step([&](const float* q) HWY_ATTR { return hn::LoadU(d, q); }, x);
        if (full < nc)
          step([&](const float* q) HWY_ATTR { return load_n(rest, q, static_cast<int>(nc - full)); }, full);
      }
      for (; p < end; ++p) {
        const float* HWY_RESTRICT b = g.b + p * g.ldb + j;
        for (int i = 0; i < MR; ++i) {
          const VF a = hn::Set(d, g.a[i * g.row + p * g.col]);
          for (int64_t x = 0; x < nc; x += kLanes) {
            const VF v = x < full ? hn::LoadU(d, b + x) : load_n(rest, b + x, static_cast<int>(nc - full));
            hn::StoreU(hn::MulAdd(a, v, hn::LoadU(d, sums[i] + x)), d, sums[i] + x);
          }
        }
      }
      for (int i = 0; i < MR; ++i)
        for (int64_t x = 0; x < nc; x += kLanes)
          put(hn::LoadU(d, sums[i] + x), g.accumulate || pc > 0, rest, g.c + i * g.ldc + j + x,
              x < full ? kLanes : static_cast<int>(nc - full));
    }
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
using D8 = hn::FixedTag<float, 8>;
// Eight columns of eight rows: out[q] lane i = row[i][q].
HWY_INLINE void transpose8(const float* const* row, int64_t at, hn::Vec<D8>* out) {
  const D8 d;
  const hn::Repartition<double, D8> w;
  auto wide = [&](hn::Vec<D8> v) HWY_ATTR { return hn::BitCast(w, v); };
  for (int h = 0; h < 8; h += 4) {
    const auto r0 = hn::LoadU(d, row[h] + at), r1 = hn::LoadU(d, row[h + 1] + at), r2 = hn::LoadU(d, row[h + 2] + at),
               r3 = hn::LoadU(d, row[h + 3] + at);
    const auto l01 = hn::InterleaveLower(d, r0, r1), u01 = hn::InterleaveUpper(d, r0, r1),
               l23 = hn::InterleaveLower(d, r2, r3), u23 = hn::InterleaveUpper(d, r2, r3);
    out[h] = hn::BitCast(d, hn::InterleaveLower(w, wide(l01), wide(l23)));
    out[h + 1] = hn::BitCast(d, hn::InterleaveUpper(w, wide(l01), wide(l23)));
    out[h + 2] = hn::BitCast(d, hn::InterleaveLower(w, wide(u01), wide(u23)));
    out[h + 3] = hn::BitCast(d, hn::InterleaveUpper(w, wide(u01), wide(u23)));
  }
  for (int q = 0; q < 4; ++q) {
    const auto lo = out[q], hi = out[q + 4];
    out[q] = hn::ConcatLowerLower(d, hi, lo);
    out[q + 4] = hn::ConcatUpperUpper(d, hi, lo);
  }
}

// B [n, k]: 16 rows of B side by side, transposed in registers eight columns at a time.
template <int MR>
void few_rows_transposed(const FewRows& g) {
  const DF d;
  constexpr int kRows = 16, kParts = kRows / kLanes;
  const int64_t kc_max = k_block(g.k);
  for (int64_t j = 0; j < g.n; j += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, g.n - j);
    const float* row[kRows];
    for (int64_t i = 0; i < kRows; ++i)
      row[i] = g.b + (j + std::min(i, rows - 1)) * g.ldb;  // past the end: the last one
    for (int64_t pc = 0; pc < g.k; pc += kc_max) {
      const int64_t end = std::min(g.k, pc + kc_max);
      VF acc[MR][kParts];
      for (auto& r : acc)
        for (auto& v : r) v = hn::Zero(d);
      auto step = [&](const VF* column, int64_t p) HWY_ATTR {
#pragma GCC unroll 4
        for (int i = 0; i < MR; ++i) {
          const VF a = hn::Set(d, g.a[i * g.row + p * g.col]);
#pragma GCC unroll 2
          for (int v = 0; v < kParts; ++v) acc[i][v] = hn::MulAdd(a, column[v], acc[i][v]);
        }
      };
      int64_t p = pc;
      for (; p + 16 <= end; p += 16) {  // whole cache lines of eight rows at a time: rows may collide in the cache
        hn::Vec<D8> lo[16], hi[16];
        transpose8(row, p, lo);
        transpose8(row, p + 8, lo + 8);
        transpose8(row + 8, p, hi);
        transpose8(row + 8, p + 8, hi + 8);
#pragma GCC unroll 16
        for (int q = 0; q < 16; ++q) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
          const VF column[1] = {hn::Combine(d, hi[q], lo[q])};
#else
          const VF column[2] = {lo[q], hi[q]};
#endif
          step(column, p + q);
        }
        // Into L2: in L1 rows a page apart would drive each other out.
        for (int i = 0; i < kRows; ++i) __builtin_prefetch(row[i] + p + 128, 0, 2);
      }
      for (; p < end; ++p) {
        HWY_ALIGN float one[kRows];
        for (int i = 0; i < kRows; ++i) one[i] = row[i][p];
        VF column[kParts];
        for (int v = 0; v < kParts; ++v) column[v] = hn::Load(d, one + v * kLanes);
        step(column, p);
      }
      for (int i = 0; i < MR; ++i)
        for (int v = 0; v < kParts; ++v) {
          const int64_t lanes = std::min<int64_t>(kLanes, rows - v * kLanes);
          if (lanes > 0)
            put(acc[i][v], g.accumulate || pc > 0, hn::FirstN(d, static_cast<size_t>(lanes)),
                g.c + i * g.ldc + j + v * kLanes, static_cast<int>(lanes));
        }
    }
  }
}
constexpr bool kFewRowsTransposed = true;
#else
template <int MR>
void few_rows_transposed(const FewRows&) {}
constexpr bool kFewRowsTransposed = false;
#endif

/// False when another path serves this shape.
inline bool few_rows(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                     int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  if (m > 4 || n < 2 * kLanes || (tb && !kFewRowsTransposed)) return false;
  const FewRows g{n, k, a, ta ? 1 : lda, ta ? lda : 1, b, ldb, c, ldc, accumulate};
  using Fn = void (*)(const FewRows&);
  static constexpr Fn plain[] = {few_rows_plain<1>, few_rows_plain<2>, few_rows_plain<3>, few_rows_plain<4>};
  static constexpr Fn transposed[] = {few_rows_transposed<1>, few_rows_transposed<2>, few_rows_transposed<3>,
                                      few_rows_transposed<4>};
  (tb ? transposed : plain)[m - 1](g);
  return true;
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
