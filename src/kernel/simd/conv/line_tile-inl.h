// The inside of forward convolutions on channels-last memory, once per instruction set: a register tile of C from rows
// that lie in lines and weights that lie in panels. Included after foreach_target.
//
// Lines are A as it lies in memory, a cache line of each row at a time: [k / kLine][rows of the tile][kLine], so that
// nothing is transposed. A panel is [k][kNR] of B; a last, partial one is filled with zeros.
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

// C[MR][NV vectors] = (C if add) + A·B over k; `tail` lanes count in the last vector. Each step fetches a line from
// `soon` on into L2: the panel that comes next is on its way while this one multiplies.
template <int MR, int NV>
void line_tile(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c, int64_t ldc,
               int tail, bool add, const float* soon) {
  const DF d;
  VF acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) acc[i][v] = hn::Zero(d);
  for (int64_t left = k; left > 0; left -= kLine) {
    const int64_t steps = std::min(left, kLine);
    for (int64_t p = 0; p < steps; ++p) {
      __builtin_prefetch(soon, 0, 2);
      soon += kLine;
      VF bv[NV];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) bv[v] = hn::Load(d, b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) {
        const VF ai = hn::Set(d, a[i * kLine]);
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
      }
      ++a;
      b += kNR;
    }
    a += (MR - 1) * kLine;
  }
  const MF mask = hn::FirstN(d, static_cast<size_t>(tail));
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) {
      float* HWY_RESTRICT dst = c + i * ldc + v * kLanes;
      if (v == NV - 1 && tail != kLanes) {
        store_n(add ? hn::Add(load_n(mask, dst, tail), acc[i][v]) : acc[i][v], mask, dst, tail);
      } else {
        hn::StoreU(add ? hn::Add(hn::LoadU(d, dst), acc[i][v]) : acc[i][v], d, dst);
      }
    }
}

using LineTileFn = void (*)(int64_t, const float*, const float*, float*, int64_t, int, bool, const float*);
template <int... R>
constexpr std::array<LineTileFn, 2 * kMR> make_line_tiles(std::integer_sequence<int, R...>) {
  return {{(R % 2 == 0 ? line_tile<R / 2 + 1, 1> : line_tile<R / 2 + 1, 2>)...}};
}
inline constexpr auto kLineTiles = make_line_tiles(std::make_integer_sequence<int, 2 * kMR>());

// Blocks of k, whole lines and equal: a function of k alone because it fixes the order of summation.
inline int64_t line_block(int64_t k) {
  const int64_t blocks = (k + kMaxKC - 1) / kMaxKC;
  return whole_lines((k + blocks - 1) / blocks);
}

// C[mr][cols] = (C if add) + lines · one panel over kc; cols at most kNR.
HWY_INLINE void multiply_panel(int64_t mr, int64_t cols, int64_t kc, const float* lines, const float* panel, float* c,
                               int64_t ldc, bool add, const float* soon) {
  const int64_t vecs = (cols + kLanes - 1) / kLanes;
  const int tail = static_cast<int>(cols - (vecs - 1) * kLanes);
  kLineTiles[static_cast<size_t>((mr - 1) * 2 + vecs - 1)](kc, lines, panel, c, ldc, tail, add, soon);
}

// The same into columns [c, c + cols) of y, whose first row is pixel `row`, through an epilogue: by way of a tile that
// stays in L1, since rows of y may be a page apart.
HWY_INLINE void multiply_panel_into(const Epilogue* e, int64_t mr, int64_t cols, int64_t kc, const float* lines,
                                    const float* panel, int64_t row, int64_t c, float* y, int64_t ld, bool add,
                                    const float* soon) {
  if (!e) return multiply_panel(mr, cols, kc, lines, panel, y + row * ld + c, ld, add, soon);
  HWY_ALIGN float t[kMR * kNR];
  multiply_panel(mr, cols, kc, lines, panel, t, kNR, false, soon);
  finish_tile<kNR>(*e, mr, row, c, cols, t, add, y, ld);
}

// Columns [c, c + cols) of rows of y, the first of which is pixel `row`: (y if add) + lines · panels over kc, through
// an epilogue. Panels are `panel` floats apart; the lines of a tile start at its first row times `pitch`, those of this
// block at k0. Panels outside, so that one comes by once; all lines stay in L2.
inline void multiply_lines(const RowTiles& rows, int64_t cols, int64_t kc, const float* lines, int64_t pitch,
                           int64_t k0, const float* panels, int64_t panel, int64_t row, int64_t c, float* y, int64_t ld,
                           bool add, const Epilogue* e) {
  for (int64_t j = 0; j < cols; j += kNR, panels += panel) {
    const int64_t here = std::min<int64_t>(kNR, cols - j);
    // The next panel in two halves, a line for every step of a tile.
    const float* soon = panels + (j + kNR < cols ? panel : 0);
    for (int64_t t = 0; t < rows.count; ++t) {
      const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
      multiply_panel_into(e, mr, here, kc, lines + i * pitch + k0 * mr, panels, row + i, c + j, y, ld, add,
                          soon + t % 2 * kc * kLine);
    }
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
