// The inside of a matrix product, once per instruction set: packing, the register tile (register blocking), one k-block
// of C. Included by gemm.cpp and conv2d_raw*.cpp after foreach_target.
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

#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

constexpr int kNV = 2;  // vectors per tile row
constexpr int kNR = kNV * kLanes;
// Rows per tile: kMR * kNV accumulators, kNV vectors of B and one broadcast of A fill the register file.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kMR = 14;
#elif HWY_ARCH_ARM_A64
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

// Panels of B are fetched by instructions: hardware stops at the end of each page.
constexpr bool kFetchesPanels = HWY_ARCH_X86;

// How a tile finds its rows of A: Across is [k][rows], `as` from one k to the next; Lines is A as it lies in memory, a
// cache line of each row at a time: [k / kLine][rows][kLine].
enum class RowsAre { Across, Lines };
constexpr int64_t kLine = 16;
inline int64_t whole_lines(int64_t k) { return (k + kLine - 1) / kLine * kLine; }

// The next line of MR rows of k floats, `left` before their end. Returns where the line after it goes. What comes
// later, at the end the rows of the next tile, is fetched into L2: in L1 rows a page apart would drive each other out.
template <int MR>
HWY_INLINE float* copy_lines(const float* HWY_RESTRICT rows, int64_t distance, int64_t left, int64_t k,
                             float* HWY_RESTRICT to) {
  constexpr int64_t kAhead = 12 * kLine;
  const float* later = rows + kAhead + (left > kAhead ? 0 : MR * distance - k);
  for (int64_t i = 0; i < MR; ++i, to += kLine) {
    __builtin_prefetch(later + i * distance, 0, 2);
    copy_n(rows + i * distance, std::min(left, kLine), to);
  }
  return to;
}

// load_n of lanes that may well be all.
HWY_INLINE VF load_some(MF m, const float* HWY_RESTRICT p, int n) {
  if (!kMaskIsSafe && n == kLanes) return hn::LoadU(DF(), p);
  return load_n(m, p, n);
}

// acc[MR][NV] += the MR floats at a, each times the vectors of B. NEON multiplies by a lane of a register: four rows of
// A are one load there, not four. NOTE(perf): 12x2 vectors, 1.33 instructions for each fmla and no spills; 1.79 and
// four spills by broadcasts.
template <int MR, int NV>
HWY_INLINE void multiply_across(const float* HWY_RESTRICT a, const VF (&bv)[NV], VF (&acc)[MR][NV]) {
#if HWY_ARCH_ARM_A64
  auto rows = [&]<int... L>(int i, float32x4_t four, std::integer_sequence<int, L...>) HWY_ATTR {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) ((acc[i + L][v].raw = vfmaq_laneq_f32(acc[i + L][v].raw, bv[v].raw, four, L)), ...);
  };
#pragma GCC unroll 4
  for (int i = 0; i + 4 <= MR; i += 4) rows(i, vld1q_f32(a + i), std::make_integer_sequence<int, 4>());
  constexpr int kRest = MR % 4, kFrom = MR - kRest;
  if constexpr (kRest == 1) {
    rows(kFrom, vdupq_n_f32(a[kFrom]), std::make_integer_sequence<int, 1>());
  } else if constexpr (kRest >= 2) {
    const float32x2_t two = vld1_f32(a + kFrom), last = kRest == 3 ? vdup_n_f32(a[MR - 1]) : two;
    rows(kFrom, vcombine_f32(two, last), std::make_integer_sequence<int, kRest>());
  }
#else
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    const VF ai = hn::Set(DF(), a[i]);
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
  }
#endif
}

// Lines of A in steps of two k where the target takes them so: on NEON two k of a row are one load. NOTE(perf): 12x2
// vectors, 1.44 instructions for each fmla and no spills; 2.12 and ten by broadcasts.
constexpr bool kLinePairs = HWY_ARCH_ARM_A64;
template <int MR, int NV>
HWY_INLINE void multiply_line_pair([[maybe_unused]] const float* HWY_RESTRICT a,
                                   [[maybe_unused]] const float* HWY_RESTRICT b, [[maybe_unused]] int64_t bs,
                                   [[maybe_unused]] VF (&acc)[MR][NV]) {
#if HWY_ARCH_ARM_A64
  float32x4_t b0[NV], b1[NV];
#pragma GCC unroll 2
  for (int v = 0; v < NV; ++v) b0[v] = vld1q_f32(b + v * kLanes), b1[v] = vld1q_f32(b + bs + v * kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    float32x2_t two = vld1_f32(a + i * kLine);
    asm volatile("" : "+w"(two));  // GCC would load each lane again
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v].raw = vfmaq_lane_f32(acc[i][v].raw, b0[v], two, 0);
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v].raw = vfmaq_lane_f32(acc[i][v].raw, b1[v], two, 1);
  }
#endif
}

// What is on its way into L2 while a tile multiplies: `step` floats with each k.
struct Soon {
  const float* at;
  int64_t step = kLine;
};

// C[MR][NV vectors] = (C if add) + A·B over k. `tail` lanes count in the last vector when kTail. An operand
// that is read in place may be left in `packed` for the tiles that need it next: the multiply-adds hide its way from
// memory, which they would wait for in a pass of its own. Packs::B is the panel of B; Packs::A the lines of A, whose
// rows are `as` apart.
enum class Packs { Nothing, A, B };
template <int MR, int NV, bool kTail, RowsAre kRows, Packs kPacks>
void tile(int64_t k, const float* HWY_RESTRICT a, int64_t as, const float* HWY_RESTRICT b, int64_t bs,
          float* HWY_RESTRICT c, int64_t ldc, int tail, bool add, float* HWY_RESTRICT packed,
          [[maybe_unused]] Soon soon) {
  constexpr int64_t kAhead = 16;
  const DF d;
  const MF mask = hn::FirstN(d, kTail ? tail : kLanes);
  VF acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v] = hn::Zero(d);
  const float* HWY_RESTRICT next = a;  // in place: the lines to be copied
  constexpr bool kCopiesLines = kPacks == Packs::A && kRows == RowsAre::Lines;
  if constexpr (kCopiesLines) {
    a = packed;
    packed = copy_lines<MR>(next, as, k, k, packed);
  }
  for (int64_t left = k; left > 0; left -= kLine) {
    const int64_t steps = kRows == RowsAre::Lines ? std::min(left, kLine) : left;
    if constexpr (kFetchesPanels && kRows == RowsAre::Lines)
      for (int64_t i = 0; i < soon.step; ++i, soon.at += kLine) __builtin_prefetch(soon.at, 0, 2);
    if constexpr (kCopiesLines) {
      next += kLine;
      if (left > kLine) packed = copy_lines<MR>(next, as, left - kLine, k, packed);
    }
    int64_t p = 0;
    if constexpr (kLinePairs && kRows == RowsAre::Lines && !kTail && kPacks != Packs::B)
      for (; p + 2 <= steps; p += 2, a += 2, b += 2 * bs) multiply_line_pair<MR, NV>(a, b, bs, acc);
    for (; p < steps; ++p) {
      VF bv[NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v)
        bv[v] = kTail && v == NV - 1 ? load_some(mask, b + v * kLanes, tail) : hn::LoadU(d, b + v * kLanes);
      // A panel streams from L2 while the tile of A stays in L1. NOTE(perf): a transformer of 128 rows, one thread of a
      // Xeon 41.2 to 36.8 ms, of Zen 5 21.6 to 20.8; networks of convolutions as before.
      if constexpr (kFetchesPanels && kPacks != Packs::B && NV == kNV) {
        constexpr int64_t kSteps = 24;
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) __builtin_prefetch(b + kSteps * bs + v * kLanes, 0, 3);
      }
      if constexpr (kPacks == Packs::B) {
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) {
          bv[v] = in_register(bv[v]);
          hn::Store(bv[v], d, packed + v * kLanes);
          __builtin_prefetch(b + kAhead * bs + v * kLanes, 0, 2);
        }
        packed += NV * kLanes;
      }
      if constexpr (kPacks == Packs::A && kRows == RowsAre::Across) {
        __builtin_prefetch(a + kAhead * as, 0, 2);
        __builtin_prefetch(a + kAhead * as + MR - 1, 0, 2);
        copy_n(a, MR, packed);
        packed += MR;
      }
      if constexpr (kRows == RowsAre::Across) {
        multiply_across<MR, NV>(a, bv, acc);
        a += as;
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i) {
          const VF ai = hn::Set(d, a[i * kLine]);
#pragma GCC unroll 2
          for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
        }
        ++a;
      }
      b += bs;
    }
    if (kRows == RowsAre::Across) break;
    a += (MR - 1) * kLine;
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

using TileFn = void (*)(int64_t, const float*, int64_t, const float*, int64_t, float*, int64_t, int, bool, float*,
                        Soon);
// One vector, whose lanes always count one by one; two; two with a tail. Only full tiles pack as they go: others are
// rare, and each kind is kMR functions for each instruction set. The oldest CPUs do two with a tail as one and one: 18
// kB less.
constexpr bool kTailsAlone = HWY_TARGET == HWY_SSE4;
template <RowsAre kRows, int... R>
constexpr std::array<TileFn, 3 * kMR> make_tiles(std::integer_sequence<int, R...>) {
  return {{(R % 3 == 0   ? tile<R / 3 + 1, 1, true, kRows, Packs::Nothing>
            : R % 3 == 1 ? tile<R / 3 + 1, 2, false, kRows, Packs::Nothing>
                         : tile < R / 3 + 1,
            kTailsAlone ? 1 : 2, true, kRows, Packs::Nothing >)...}};
}
template <RowsAre kRows>
inline constexpr std::array<TileFn, 3 * kMR> kTiles = make_tiles<kRows>(std::make_integer_sequence<int, 3 * kMR>());
template <RowsAre kRows, Packs kPacks, int... R>
constexpr std::array<TileFn, kMR> make_packing_tiles(std::integer_sequence<int, R...>) {
  return {{tile<R + 1, kNV, false, kRows, kPacks>...}};
}
template <RowsAre kRows, Packs kPacks>
inline constexpr std::array<TileFn, kMR> kPackingTiles =
    make_packing_tiles<kRows, kPacks>(std::make_integer_sequence<int, kMR>());

// Rows are cut into equal tiles: 64 rows are 13+13+13+13+12, not 14*4+8.
struct RowTiles {
  int64_t m, count;
  explicit RowTiles(int64_t rows) : RowTiles(rows, (rows + kMR - 1) / kMR) {}
  RowTiles(int64_t rows, int64_t tiles) : m(rows), count(tiles) {}
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
  int64_t ld;                    // 0: packed
  const float* after = nullptr;  // of a B in panels that come from memory: what is read after them
};
// What a tile of rows t fetches of that beside column j. All tiles together fetch as much as they read, evenly.
inline Soon panels_after(const RowTiles& rows, int64_t t, Operand b, int64_t n, int64_t j, int64_t kc) {
  if (!b.after) return {nullptr, 0};
  const int64_t step = (kNR + rows.count - 1) / rows.count;
  return {b.after + (t * n / kNR + j / kNR) * kc * step, step};
}

// Columns of the panel that starts at column j, rounded up to whole vectors: the row distance of a packed panel.
inline int64_t panel_stride(int64_t n, int64_t j) {
  return std::min<int64_t>(kNR, (n - j + kLanes - 1) / kLanes * kLanes);
}

// The rows of one tile of A: where they start, and the distance between two k when they run across.
inline std::pair<const float*, int64_t> rows_of_tile(RowsAre form, Operand a, int64_t i, int64_t mr, int64_t kc) {
  if (a.ld) return {a.data + i, a.ld};
  return {a.data + i * (form == RowsAre::Lines ? whole_lines(kc) : kc), mr};
}

// C[mr][cols] (+)= A·B, cols at most kNR; `as` and `bs` are the distances between two k.
template <RowsAre kRows>
void multiply_tile(int64_t mr, int64_t cols, int64_t kc, const float* a, int64_t as, const float* b, int64_t bs,
                   float* c, int64_t ldc, bool add, Soon soon = {nullptr, 0}) {
  const int64_t vecs = (cols + kLanes - 1) / kLanes;
  const int tail = static_cast<int>(cols - (vecs - 1) * kLanes);
  const int64_t kind = vecs == 1 ? 0 : tail == kLanes ? 1 : 2;
  if (kTailsAlone && kind == 2) {
    const TileFn one = kTiles<kRows>[(mr - 1) * 3];
    one(kc, a, as, b, bs, c, ldc, kLanes, add, nullptr, soon);
    return one(kc, a, as, b + kLanes, bs, c + kLanes, ldc, tail, add, nullptr, soon);
  }
  kTiles<kRows>[(mr - 1) * 3 + kind](kc, a, as, b, bs, c, ldc, tail, add, nullptr, soon);
}

// Row tiles [t0, t1) of C[m,n] (+)= A·B over one k-block of kc; all pointers are to the whole operands.
template <RowsAre kRows = RowsAre::Across>
void multiply_tiles(const RowTiles& rows, int64_t t0, int64_t t1, int64_t n, int64_t kc, Operand a, Operand b, float* c,
                    int64_t ldc, bool add) {
  // Rows outside: a tile of A (28 KiB) stays in L1 while B streams from L2. NOTE(perf): 1024^3 103 GFLOP/s against 95
  // the other way.
  for (int64_t t = t0; t < t1; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    const auto [ap, as] = rows_of_tile(kRows, a, i, mr, kc);
    for (int64_t j = 0; j < n; j += kNR)
      multiply_tile<kRows>(mr, std::min<int64_t>(kNR, n - j), kc, ap, as, b.ld ? b.data + j : b.data + j * kc,
                           b.ld ? b.ld : panel_stride(n, j), c + i * ldc + j, ldc, add,
                           panels_after(rows, t, b, n, j, kc));
  }
}
template <RowsAre kRows = RowsAre::Across>
void multiply_block(int64_t m, int64_t n, int64_t kc, Operand a, Operand b, float* c, int64_t ldc, bool add) {
  const RowTiles rows(m);
  multiply_tiles<kRows>(rows, 0, rows.count, n, kc, a, b, c, ldc, add);
}

// A transposed A, read in the order of memory: a row of k is one or two cache lines, often a page from the next, where
// no hardware prefetcher follows, and the lines of different rows may fall into the same set of the cache.
inline void pack_rows_straight(const float* HWY_RESTRICT a, int64_t lda, int64_t m, int64_t kc,
                               float* HWY_RESTRICT dst) {
  constexpr int64_t kAhead = 12;
  const RowTiles rows(m);
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

// A plain A for tiles that take it Across.
inline void pack_rows(const float* a, int64_t lda, int64_t m, int64_t kc, float* dst) {
  const RowTiles rows(m);
  for (int64_t t = 0; t < rows.count; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    pack_transposed(a + i * lda, lda, mr, kc, dst + i * kc, mr);
  }
}

// A plain A for tiles that take Lines: copied as it lies, without the shuffles of a transpose.
inline void pack_lines(const float* HWY_RESTRICT a, int64_t lda, int64_t m, int64_t kc, float* HWY_RESTRICT dst) {
  constexpr int64_t kAhead = 4 * kLine;
  const RowTiles rows(m);
  for (int64_t t = 0; t < rows.count; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    for (int64_t p = 0; p < kc; p += kLine) {
      const int64_t steps = std::min(kLine, kc - p);
      for (int64_t r = 0; r < mr; ++r, dst += kLine) {
        hwy::Prefetch(a + (i + r) * lda + p + kAhead);
        copy_n(a + (i + r) * lda + p, steps, dst);
      }
    }
  }
}

// Whole panels of a plain B: eight at a time, a kilobyte of each row, because a stream of short pieces far apart comes
// at a third of the memory's speed. NOTE(perf): as a pass before 128x3072x768 0.89 of peak, 0.82 panel by panel, 0.84
// with sixteen.
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

// Packs the rows of an A of that form.
template <RowsAre kRows>
void pack_a(const float* a, int64_t lda, int64_t m, int64_t kc, float* dst) {
  (kRows == RowsAre::Lines ? pack_lines : pack_rows_straight)(a, lda, m, kc, dst);
}

// multiply_tile with rows of A, `lda` apart, that are left in `packed`.
template <RowsAre kRows>
void multiply_tile_packing(int64_t mr, int64_t cols, int64_t kc, const float* a, int64_t lda, const float* b,
                           int64_t bs, float* c, int64_t ldc, bool add, float* packed, Soon soon = {nullptr, 0}) {
  if (cols == kNR) return kPackingTiles<kRows, Packs::A>[mr - 1](kc, a, lda, b, bs, c, ldc, kLanes, add, packed, soon);
  pack_a<kRows>(a, lda, mr, kc, packed);
  multiply_tile<kRows>(mr, cols, kc, packed, mr, b, bs, c, ldc, add, soon);
}

// Rows of A that are not packed yet. Each tile of them is packed at its first panel of B, where multiply-adds hide the
// way from memory: the lines of a core's own misses are few, and a copy alone waits for them. `keep`: all tiles are
// left in `packed` for the next columns; else the last one.
struct FreshRows {
  const float* a;
  int64_t lda;
  float* packed;
  bool keep;
};
template <RowsAre kRows>
void multiply_tiles_packing(const RowTiles& rows, int64_t t0, int64_t n, int64_t kc, const FreshRows& from, Operand b,
                            float* c, int64_t ldc, bool add) {
  constexpr bool kLines = kRows == RowsAre::Lines;
  for (int64_t t = t0; t < rows.count; ++t) {
    const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
    float* packed = from.packed + (from.keep ? i * (kLines ? whole_lines(kc) : kc) : 0);
    for (int64_t j = 0; j < n; j += kNR) {
      const int64_t cols = std::min<int64_t>(kNR, n - j), bs = b.ld ? b.ld : panel_stride(n, j);
      const float* bp = b.ld ? b.data + j : b.data + j * kc;
      const Soon soon = panels_after(rows, t, b, n, j, kc);
      if (j == 0)
        multiply_tile_packing<kRows>(mr, cols, kc, from.a + (kLines ? i * from.lda : i), from.lda, bp, bs, c + i * ldc,
                                     ldc, add, packed, soon);
      else
        multiply_tile<kRows>(mr, cols, kc, packed, mr, bp, bs, c + i * ldc + j, ldc, add, soon);
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

// multiply_block with a plain B that is not packed yet: the first tile of rows packs the panels into `packed`.
template <RowsAre kRows>
void multiply_block_packing(int64_t m, int64_t n, int64_t kc, Operand a, const FreshRows* fresh, const float* b,
                            int64_t ldb, float* packed, float* c, int64_t ldc, bool add) {
  const RowTiles rows(m);
  const int64_t mr = rows.begin(1), whole = n - n % kNR;
  if (fresh) pack_a<kRows>(fresh->a, fresh->lda, mr, kc, fresh->packed);
  const auto [ap, as] = rows_of_tile(kRows, a, 0, mr, kc);
  for (int64_t j = 0; j < whole; j += kNR)
    kPackingTiles<kRows, Packs::B>[mr - 1](kc, ap, as, b + j, ldb, c + j, ldc, kLanes, add, packed + j * kc,
                                           {nullptr, 0});
  if (whole < n) {
    const int64_t bs = panel_stride(n, whole);
    pack_straight(b + whole, ldb, n - whole, kc, packed + whole * kc, bs);
    multiply_tile<kRows>(mr, n - whole, kc, ap, as, packed + whole * kc, bs, c + whole, ldc, add);
  }
  if (fresh)
    multiply_tiles_packing<kRows>(rows, 1, n, kc, *fresh, {packed, 0}, c, ldc, add);
  else
    multiply_tiles<kRows>(rows, 1, rows.count, n, kc, a, {packed, 0}, c, ldc, add);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
