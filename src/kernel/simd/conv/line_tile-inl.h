// The inside of forward convolutions on channels-last memory, once per instruction set: a register tile of C from rows
// that lie in lines and weights that lie in panels. Included after foreach_target.
//
// Lines are A as it lies in memory, a cache line of each row at a time: [k / kLine][rows of the tile][kLine], so that
// nothing is transposed. Rows may also be read where they are, `apart` floats from each other. A panel is [k][kNR] of
// B; a last, partial one is filled with zeros.
#if defined(MGE_LINE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_LINE_TILE_INL_H_
#undef MGE_LINE_TILE_INL_H_
#else
#define MGE_LINE_TILE_INL_H_
#endif

#include <array>
#include <utility>

#include "kernel/simd/conv/epilogue-inl.h"
#include "kernel/simd/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// What a tile does with what c holds: nothing, or sums are added to it, or they go on from it.
struct LineSums {
  bool add = false, resume = false;
};

// Where a tile goes: rows of c, `ld` apart, of whose last vector `tail` lanes count. `done`, if any, is what the sums
// of columns from `col` on go through; its summand for this tile is `summand`.
struct LineTileTo {
  float* c;
  int64_t ld;
  int tail;
  LineSums sums;
  const Epilogue* done;
  int64_t col;
  const float* summand;
};

// Fetches the lines that a tile will be added to and written to: they come while it multiplies, which a store that
// misses the cache would wait for. A step of wide tiles has room for a row of them; else all rows come first.
template <int MR, int NV>
struct RowFetcher {
  static constexpr bool kInSteps = MR * NV >= 8 && kLanes == 16;
  const float *row, *summand;
  int64_t ld, left = MR;
  HWY_INLINE explicit RowFetcher(const LineTileTo& to) : row(to.c), summand(to.summand), ld(to.ld) {
    if constexpr (!kInSteps)
      for (int i = 0; i < MR; ++i) fetch();
  }
  HWY_INLINE void step() {
    if constexpr (kInSteps)
      if (left > 0) fetch();
  }

 private:
  HWY_INLINE void fetch() {
#pragma GCC unroll 2
    for (int64_t j = 0; j < NV * kLanes; j += kLine) {
      __builtin_prefetch(row + j, 1, 3);
      if (summand) __builtin_prefetch(summand + j, 0, 3);
    }
    --left;
    row += ld;
    if (summand) summand += ld;
  }
};

// A last, partial vector v of `rows` rows, whose sums are t[rows][kLanes]: by way of memory, to be small.
HWY_NOINLINE inline void finish_rest(const LineTileTo& to, int v, int rows, const float* t) {
  const MF m = hn::FirstN(DF(), static_cast<size_t>(to.tail));
  const Epilogue none;
  const ChannelSteps steps(to.done ? *to.done : none, to.col + v * kLanes, m, to.tail);
  for (int i = 0; i < rows; ++i) {
    float* c = to.c + i * to.ld + v * kLanes;
    VF s = hn::Load(DF(), t + i * kLanes);
    if (to.sums.add) s = hn::Add(load_n(m, c, to.tail), s);
    s = steps.before(s);
    if (to.summand) s = hn::Add(s, load_n(m, to.summand + i * to.ld + v * kLanes, to.tail));
    store_n(steps.after(s), m, c, to.tail);
  }
}

// Masks that cost nothing.
constexpr bool kFreeMasks = kLanes == 16 && kMaskIsSafe;

// Vector v of each row of a tile from its sums to memory, all in registers. Step by step over the rows: what a step
// needs is asked once.
template <int v, int MR, int NV>
HWY_INLINE void finish_rows(const LineTileTo& to, const VF (&sums)[MR][NV]) {
  const DF d;
  VF acc[MR];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) acc[i] = sums[i][v];
  const bool whole = v < NV - 1 || to.tail == kLanes;
  if (!kFreeMasks && !whole) {
    HWY_ALIGN float t[MR * kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) hn::Store(acc[i], d, t + i * kLanes);
    return finish_rest(to, v, MR, t);
  }
  const int lanes = whole ? kLanes : to.tail;
  const MF m = hn::FirstN(d, static_cast<size_t>(lanes));
  const int64_t ld = to.ld;
  float* HWY_RESTRICT c = to.c + v * kLanes;
  auto plus = [&](const float* HWY_RESTRICT from) HWY_ATTR {
    return [=](int i) HWY_ATTR { return kFreeMasks ? load_n(m, from + i * ld, lanes) : hn::LoadU(d, from + i * ld); };
  };
  if (to.sums.add) {
    const auto before = plus(c);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) acc[i] = hn::Add(acc[i], before(i));
  }
  if (to.done)
    ChannelSteps(*to.done, to.col + v * kLanes, m, lanes)
        .all(acc, to.summand != nullptr, plus(to.summand + v * kLanes));
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    if (whole)
      hn::StoreU(acc[i], d, c + i * ld);
    else if constexpr (kFreeMasks)
      store_n(acc[i], m, c + i * ld, lanes);
  }
}

template <int MR, int NV>
HWY_INLINE void finish_tile(const LineTileTo& to, const VF (&sums)[MR][NV]) {
  finish_rows<0>(to, sums);
  if constexpr (NV > 1) finish_rows<1>(to, sums);
}

// Rows of A, of which a tile takes one k after the other. Lines are kLine apart; after a line of each row come the next
// ones. Three rows share a pointer: an address has room for one and two times their distance.
template <int MR>
struct RowsOfA {
  static constexpr int kShared = kLinePairs ? MR : 3;
  static constexpr int kPointers = (MR + kShared - 1) / kShared;
  const float* row[kPointers];
  int64_t apart, past_line;
  HWY_INLINE RowsOfA(const float* a, int64_t rows_apart)
      : apart(kLinePairs ? kLine : rows_apart), past_line(apart == kLine ? (MR - 1) * kLine : 0) {
#pragma GCC unroll 8
    for (int j = 0; j < kPointers; ++j) row[j] = a + j * kShared * apart;
  }
  HWY_INLINE VF at(int i) const { return hn::Set(DF(), row[i / kShared][i % kShared * apart]); }
  HWY_INLINE void on(int64_t floats) {
#pragma GCC unroll 8
    for (int j = 0; j < kPointers; ++j) row[j] += floats;
  }
};

// C[MR][NV vectors] = (C if add) + A·B over k, through an epilogue. kHalf: of the last vector only the lower half
// counts; a core that works on 512 bits in two halves has it in half the time.
template <int MR, int NV, bool kHalf = false>
void line_tile(int64_t k, const float* a, int64_t apart, const float* HWY_RESTRICT b, const LineTileTo& to, Soon soon) {
  RowFetcher<MR, NV> fetch(to);
  RowsOfA<MR> rows(a, apart);
  constexpr int kWhole = kHalf ? NV - 1 : NV;
  const DF d;
  [[maybe_unused]] const hn::Half<DF> dh;
  using VH = hn::Vec<hn::Half<DF>>;
  VF acc[MR][NV];
  [[maybe_unused]] VH half[MR];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kWhole; ++v) acc[i][v] = hn::Zero(d);
    if constexpr (kHalf) half[i] = hn::Zero(dh);
  }
  if (!kHalf && to.sums.resume) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) acc[i][v] = hn::LoadU(d, to.c + i * to.ld + v * kLanes);
  }
  for (int64_t left = k; left > 0; left -= kLine) {
    const int64_t steps = std::min(left, kLine);
    int64_t p = 0;
    if constexpr (kLinePairs)
      for (; p + 2 <= steps; p += 2, rows.on(2), b += 2 * kNR, soon.at += soon.step) {
        __builtin_prefetch(soon.at, 0, 2);
        multiply_line_pair<MR, NV>(rows.row[0], b, kNR, acc);
      }
    for (; p < steps; ++p) {
      __builtin_prefetch(soon.at, 0, 2);
      soon.at += soon.step;
      fetch.step();
      VF bv[NV];
      [[maybe_unused]] VH bh;
#pragma GCC unroll 2
      for (int v = 0; v < kWhole; ++v) bv[v] = hn::Load(d, b + v * kLanes);
      if constexpr (kHalf) bh = hn::Load(dh, b + kWhole * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) {
        const VF ai = rows.at(i);
#pragma GCC unroll 2
        for (int v = 0; v < kWhole; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
        if constexpr (kHalf) half[i] = hn::MulAdd(hn::LowerHalf(dh, ai), bh, half[i]);
      }
      rows.on(1);
      b += kNR;
    }
    rows.on(rows.past_line);
  }
  if constexpr (kHalf)
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) acc[i][kWhole] = hn::ZeroExtendVector(d, half[i]);
  finish_tile(to, acc);
}

using LineTileFn = void (*)(int64_t, const float*, int64_t, const float*, const LineTileTo&, Soon);
template <int... R>
constexpr std::array<LineTileFn, 2 * kMR> make_line_tiles(std::integer_sequence<int, R...>) {
  return {{(R % 2 == 0 ? line_tile<R / 2 + 1, 1> : line_tile<R / 2 + 1, 2>)...}};
}
inline constexpr auto kLineTiles = make_line_tiles(std::make_integer_sequence<int, 2 * kMR>());
// Tiles of all rows whose last vector is at most half full, where that is worth code of its own.
constexpr bool kHalfTiles = kLanes == 16;
inline constexpr LineTileFn kHalfLineTiles[2] = {line_tile<kMR, 1, kHalfTiles>, line_tile<kMR, 2, kHalfTiles>};

// Blocks of k, whole lines and equal: a function of k alone because it fixes the order of summation.
inline int64_t line_block(int64_t k) {
  const int64_t blocks = (k + kMaxKC - 1) / kMaxKC;
  return whole_lines((k + blocks - 1) / blocks);
}

// Columns [c, c + cols) of rows of y, the first of which is pixel `row`: (y if add) + lines · one panel over kc,
// through an epilogue; cols at most kNR.
HWY_INLINE void multiply_panel(const Epilogue* e, int64_t mr, int64_t cols, int64_t kc, const float* lines,
                               int64_t apart, const float* panel, int64_t row, int64_t c, float* y, int64_t ld,
                               const LineSums& sums, Soon soon) {
  const int64_t vecs = (cols + kLanes - 1) / kLanes;
  const int tail = static_cast<int>(cols - (vecs - 1) * kLanes);
  const bool half = kHalfTiles && mr == kMR && tail <= kLanes / 2;
  const LineTileFn tile = half ? kHalfLineTiles[vecs - 1] : kLineTiles[static_cast<size_t>((mr - 1) * 2 + vecs - 1)];
  const int64_t at = row * ld + c;
  tile(kc, lines, apart, panel, {y + at, ld, tail, sums, e, c, e && e->add ? e->add + at : nullptr}, soon);
}

// Columns [c, c + cols) of rows of y, the first of which is pixel `row`: (y if add) + lines · panels over kc, through
// an epilogue. Panels are `panel` floats apart; the lines of a tile start at its first row times `pitch`, those of this
// block at k0, and rows are `apart` from each other. Panels outside, so that one comes by once; all lines stay in L2.
// `after`, if any, is read after them; all tiles together fetch so much of it as their steps make.
inline void multiply_lines(const RowTiles& rows, int64_t cols, int64_t kc, const float* lines, int64_t pitch,
                           int64_t k0, int64_t apart, const float* panels, int64_t panel, int64_t row, int64_t c,
                           float* y, int64_t ld, const LineSums& sums, const Epilogue* e, Soon after = {nullptr}) {
  for (int64_t j = 0; j < cols; j += kNR, panels += panel) {
    const int64_t here = std::min<int64_t>(kNR, cols - j);
    // The next panel in two halves, a line for every step of a tile.
    const bool last = j + kNR >= cols;
    for (int64_t t = 0; t < rows.count; ++t) {
      const Soon soon = last && after.at ? Soon{after.at + t * kc * after.step, after.step}
                                         : Soon{panels + (last ? 0 : panel) + t % 2 * kc * kLine};
      const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
      multiply_panel(e, mr, here, kc, lines + i * pitch + k0 * mr, apart, panels, row + i, c + j, y, ld, sums, soon);
    }
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
