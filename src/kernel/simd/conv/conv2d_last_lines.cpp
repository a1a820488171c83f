// Forward convolution as one product over the pixels: rows of A are patches, copied line by line out of the image into
// what a register tile reads (line_tile-inl.h), so that no matrix of patches exists; B is the weight in panels,
// [panel][tap][channel][kNR]. What follows the sums is done while they are in the cache.
//
// A sum goes over the taps, each over its channels, in blocks of k that depend on its length alone: bits depend neither
// on threads nor on how pixels and channels are cut.
#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"

#ifndef MGE_CONV2D_LAST_LINES_ONCE
#define MGE_CONV2D_LAST_LINES_ONCE
namespace mge::simd {
namespace {

// The sum of one output: `taps` times `channels`, which several taps fill up to whole lines.
struct LinesSum {
  int64_t taps, channels, k;
  explicit LinesSum(const ConvGeom& g)
      : taps(g.kh * g.kw), channels(taps == 1 ? g.c : (g.c + 15) / 16 * 16), k(taps * channels) {}
};
}  // namespace
}  // namespace mge::simd
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_lines.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/line_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Whether rows of A are read where they lie: pixels are their own patches, and those of a tile, which lie side by side,
// do not drive each other out of the first cache, as they would so many floats apart.
bool in_place(const ConvGeom& g, const LinesSum& s) {
  return !kLinePairs && s.taps == 1 && g.sh * g.sw == 1 && g.ph + g.pw == 0 && g.c % 512 != 0;
}

// Lines [k0, k1) of the pixels [first, first + rows), which are one tile, where every pixel is its own patch. What a
// last line holds past the channels is not multiplied: the next pixel's.
void lines_of_points(const ConvGeom& g, const float* x, int64_t first, int64_t rows, int64_t k0, int64_t k1,
                     float* lines) {
  const DF d;
  const float* HWY_RESTRICT from = x + first * g.c + k0;
  const int64_t left = (g.n * g.h * g.w - first) * g.c - k0;  // floats from there to the end of the image
  for (int64_t r = 0; r < rows; ++r) {
    float* HWY_RESTRICT to = lines + r * kLine;
    for (int64_t k = 0; k < k1 - k0; k += kLine, to += rows * kLine) {
      if (const int64_t at = r * g.c + k; at + kLine <= left) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < kLine; i += kLanes) hn::Store(hn::LoadU(d, from + at + i), d, to + i);
      } else {
        copy_n(from + at, left - at, to);
      }
    }
  }
}

// The same for any window.
void lines_of_pixels(const ConvGeom& g, const LinesSum& s, const float* x, int64_t first, int64_t rows, int64_t k0,
                     int64_t k1, float* lines) {
  if (s.taps == 1 && g.sh * g.sw == 1 && g.ph + g.pw == 0) return lines_of_points(g, x, first, rows, k0, k1, lines);
  const DF d;
  const int64_t step = rows * kLine;
  int64_t ox = first % g.ow, oy = first / g.ow % g.oh, n = first / (g.ow * g.oh);
  const int64_t tap0 = k0 / s.channels, c_first = k0 % s.channels;
  for (int64_t r = 0; r < rows; ++r, lines += kLine) {
    float* HWY_RESTRICT to = lines;
    int64_t tap = tap0, c = c_first;
    for (int64_t k = k0; k < k1; ++tap, c = 0) {
      const int64_t end = std::min(s.channels, c + k1 - k), row = tap / g.kw, col = tap - row * g.kw;
      const int64_t iy = oy * g.sh - g.ph + row * g.dh, ix = ox * g.sw - g.pw + col * g.dw;
      k += end - c;
      if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) {
        for (; c < end; c += kLine, to += step) std::fill_n(to, kLine, 0.f);
        continue;
      }
      const float* HWY_RESTRICT from = x + ((n * g.h + iy) * g.w + ix) * g.c;
      for (const int64_t whole = std::min(end, g.c) - kLine; c <= whole; c += kLine, to += step) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < kLine; i += kLanes) hn::Store(hn::LoadU(d, from + c + i), d, to + i);
      }
      if (c < end) {  // the last line
        const int64_t count = std::min(end, g.c) - c;
        std::fill_n(to, kLine, 0.f);
        copy_n(from + c, count, to);
        to += step;
      }
    }
    if (++ox == g.ow) {
      ox = 0;
      if (++oy == g.oh) oy = 0, ++n;
    }
  }
}

// Pixels [row0, row1) and output channels [j0, j1); j0 starts a panel.
void lines_piece(const ConvGeom& g, const float* x, const float* weight, float* y, const Epilogue* e, int64_t row0,
                 int64_t row1, int64_t j0, int64_t j1) {
  const LinesSum s(g);
  const int64_t block = line_block(s.k), cols = j1 - j0;
  weight += j0 * s.k;
  auto finish_whole_rows = [&](int64_t first, int64_t last) {
    if (e && e->row)
      for (int64_t p = first; p < last; ++p) e->finish(y + p * g.o + j0, cols);
  };
  // Tiles of pixels that are worked on together. Beside a weight that stays in L2, as many as the first cache holds, so
  // that a panel comes by once for several of them and results go to memory in their order. Else their lines take a
  // quarter of L2, and the rest is for panels and sums.
  const RowTiles all(row1 - row0);
  const bool stays = s.k <= block && s.k * cols * int64_t{sizeof(float)} <= machine().l2 / 2;
  const int64_t tile_bytes = kMR * block * int64_t{sizeof(float)};
  const int64_t most = stays ? std::clamp<int64_t>(machine().l1 / 2 / tile_bytes, 2, 8)
                             : std::max<int64_t>(1, machine().l2 / 4 / tile_bytes);
  const int64_t groups = (all.count + most - 1) / most;
  const bool points = in_place(g, s);
  float* lines = points ? nullptr : scratch(Scratch::PackA, (most + 1) * kMR * block);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t t0 = all.count * group / groups, t1 = all.count * (group + 1) / groups;
    const int64_t first = row0 + all.begin(t0), last = row0 + all.begin(t1);
    const RowTiles tiles(last - first, t1 - t0);
    for (int64_t k = 0; k < s.k; k += block) {
      const int64_t kc = std::min(block, s.k - k), pitch = whole_lines(kc);
      if (points) {
        multiply_lines(tiles, cols, kc, x + first * g.c + k, g.c, 0, g.c, weight + k * kNR, s.k * kNR, first, j0, y,
                       g.o, {.add = k > 0}, k + kc == s.k ? e : nullptr);
        continue;
      }
      for (int64_t t = 0; t < tiles.count; ++t)
        lines_of_pixels(g, s, x, first + tiles.begin(t), tiles.begin(t + 1) - tiles.begin(t), k, k + kc,
                        lines + tiles.begin(t) * pitch);
      multiply_lines(tiles, cols, kc, lines, pitch, 0, kLine, weight + k * kNR, s.k * kNR, first, j0, y, g.o,
                     {.add = k > 0}, k + kc == s.k ? e : nullptr);
    }
    finish_whole_rows(first, last);
  }
}

void lines_shape(int64_t* rows, int64_t* cols) { *rows = kMR, *cols = kNR; }

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(lines_piece);
HWY_EXPORT(lines_shape);

struct Cut {
  int64_t rows, cols;  // pieces
};
// As many pieces as there is work for. Cut by pixels each thread reads the whole weight, by channels the whole image.
Cut cut_lines(const ConvGeom& g, int64_t pixels, int64_t mr, int64_t nr) {
  const int64_t threads = num_threads();
  const double worth = costs().fma * g.flops() / 2 / std::max(costs().piece, 1e-3);
  if (threads == 1 || worth < 2) return {1, 1};
  // Large ones in more pieces than threads: one that is late leaves some to others.
  const auto most = static_cast<int64_t>(std::min(worth, 1e9));
  const int64_t parts = std::min(most, worth > static_cast<double>(16 * threads) ? 3 * threads : threads);
  const int64_t rows = std::max<int64_t>(1, pixels / mr), cols = (g.o + nr - 1) / nr;
  Cut best{1, 1};
  double least = 1e300;
  for (int64_t r = 1; r <= std::min(parts, rows); ++r)
    for (int64_t c = 1; c <= std::min(parts / r, cols); ++c) {
      const auto rounds = static_cast<double>((r * c + threads - 1) / threads);
      const auto lines = static_cast<double>((pixels + r - 1) / r), outs = static_cast<double>((cols + c - 1) / c * nr);
      // For each k the sums of the slowest thread; what it reads from beyond its caches; lines that are copied.
      const double cost = rounds * (lines * outs + 2 * (lines + outs) + 4 * lines) + 64.0 * static_cast<double>(r * c);
      if (cost < least) least = cost, best = {r, c};
    }
  return best;
}

}  // namespace

int64_t lines_floats(const ConvGeom& g) { return (g.o + 31) / 32 * 32 * LinesSum(g).k; }

void lines_last_weights(const ConvGeom& g, const float* wt, float* panels) {
  const LinesSum s(g);
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(lines_shape)(&mr, &nr);
  if (s.channels != g.c) std::fill_n(panels, (g.o + nr - 1) / nr * nr * s.k, 0.f);
  pack_weight({g.o, g.c, s.taps, nr, s.k * nr, nr, s.channels * nr}, wt, panels);
}

void lines_last_fwd_panels(const ConvGeom& g, const float* x, const float* panels, float* y, const Epilogue* e) {
  const int64_t pixels = g.n * g.oh * g.ow;
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(lines_shape)(&mr, &nr);
  const Cut cut = cut_lines(g, pixels, mr, nr);
  const int64_t across = (g.o + nr - 1) / nr;
  parallel_for(cut.rows * cut.cols, 1, [&](int64_t b, int64_t end) {
    for (; b < end; ++b) {
      const int64_t r = b / cut.cols, c = b % cut.cols;
      const int64_t j0 = across * c / cut.cols * nr, j1 = std::min(g.o, across * (c + 1) / cut.cols * nr);
      HWY_DYNAMIC_DISPATCH(lines_piece)
      (g, x, panels, y, e, pixels * r / cut.rows, pixels * (r + 1) / cut.rows, j0, j1);
    }
  });
}

void lines_last_rows(const ConvGeom& g, const float* x, const float* panels, float* y, const Epilogue* e, int64_t first,
                     int64_t last) {
  HWY_DYNAMIC_DISPATCH(lines_piece)(g, x, panels, y, e, first * g.ow, last * g.ow, 0, g.o);
}

void lines_last_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  float* panels = scratch(Scratch::Weight, lines_floats(g));
  lines_last_weights(g, wt, panels);
  lines_last_fwd_panels(g, x, panels, y, e);
}

}  // namespace mge::simd
#endif
