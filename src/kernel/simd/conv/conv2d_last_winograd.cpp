// 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): outputs in tiles of 2x2 from 4x4 inputs. Tiles and weights
// are transformed by additions and halvings, after which a convolution is 16 matrix products over all tiles, with 4/9
// of the multiplications; the adjoints are the same products transposed. The transforms of inputs (B), weights (G) and
// outputs (A) are those of Lavin and Gray (2015). F(4x4, 3x3), forward only, has tiles of 4x4 from 6x6 inputs and 1/4
// of the multiplications, and rounds more: its points are 0, +-sqrt(1/2), +-sqrt(2) and infinity, which lose the least
// digits (Barabasz et al. 2020).
//
// Every sum is taken in an order that depends on the geometry alone: tiles are independent of each other in the forward
// pass and in dx, and the tiles of dw come in blocks of kTilesOfSum.
#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"

#ifndef MGE_CONV2D_LAST_WINOGRAD_ONCE
#define MGE_CONV2D_LAST_WINOGRAD_ONCE
namespace mge::simd {
namespace {
constexpr int kTilePoints = 16;                                                // of tiles of 2x2 outputs
constexpr int64_t points_of(int64_t side) { return (side + 2) * (side + 2); }  // of a transformed tile

// An image of `c` channels cut into tiles of `side` outputs: tile (ty, tx) starts at row side * ty - top, column
// side * tx - left.
struct TiledImage {
  int64_t h, w, c, rows, cols, top, left, side = 2;
};
struct TileAt {
  int64_t n, y, x;
  TileAt(const TiledImage& i, int64_t tile)
      : n(tile / (i.rows * i.cols)), y(tile / i.cols % i.rows * i.side - i.top), x(tile % i.cols * i.side - i.left) {}
};

// `count` tiles from `first` on that are worked on together, and where: the points of inputs in lines and of outputs in
// rows, [point][tile][channel].
struct TileBlock {
  int64_t first, count;
  float *from, *to;
};
}  // namespace
}  // namespace mge::simd
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_winograd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/line_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
using DI = hn::RebindToSigned<DF>;

constexpr float kRoot = 1.41421356237f, kRootHalf = 0.70710678118f;

HWY_INLINE VF half(VF v) { return hn::Mul(hn::Set(DF(), 0.5f), v); }

// One dimension of each transform: `to` and `from` step by S from element to element.
template <int kSide, int S>
HWY_INLINE void input_line(const VF* from, VF* to) {
  if constexpr (kSide == 2) {
    const VF a = from[0], b = from[S], c = from[2 * S], d = from[3 * S];
    to[0] = hn::Sub(a, c);
    to[S] = hn::Add(b, c);
    to[2 * S] = hn::Sub(c, b);
    to[3 * S] = hn::Sub(b, d);
  } else {
    const DF d;
    const VF x0 = from[0], x1 = from[S], x2 = from[2 * S], x3 = from[3 * S], x4 = from[4 * S], x5 = from[5 * S];
    const VF near = hn::NegMulAdd(hn::Set(d, 2.f), x2, x4), far = hn::NegMulAdd(hn::Set(d, 0.5f), x2, x4);
    const VF odd_near = hn::Mul(hn::Set(d, kRootHalf), hn::NegMulAdd(hn::Set(d, 2.f), x1, x3)),
             odd_far = hn::Mul(hn::Set(d, kRoot), hn::NegMulAdd(hn::Set(d, 0.5f), x1, x3));
    to[0] = hn::NegMulAdd(hn::Set(d, 2.5f), x2, hn::Add(x0, x4));
    to[S] = hn::Add(near, odd_near);
    to[2 * S] = hn::Sub(near, odd_near);
    to[3 * S] = hn::Add(far, odd_far);
    to[4 * S] = hn::Sub(far, odd_far);
    to[5 * S] = hn::NegMulAdd(hn::Set(d, 2.5f), x3, hn::Add(x1, x5));
  }
}
// The points of a line to its outputs.
template <int kSide, int S, int T>
HWY_INLINE void output_line(const VF* from, VF* to) {
  if constexpr (kSide == 2) {
    const VF a = from[0], b = from[S], c = from[2 * S], d = from[3 * S];
    to[0] = hn::Add(hn::Add(a, b), c);
    to[T] = hn::Sub(hn::Sub(b, c), d);
  } else {
    const DF d;
    const VF near = hn::Add(from[S], from[2 * S]), odd_near = hn::Sub(from[S], from[2 * S]),
             far = hn::Add(from[3 * S], from[4 * S]), odd_far = hn::Sub(from[3 * S], from[4 * S]);
    to[0] = hn::Add(hn::Add(from[0], near), far);
    to[T] = hn::MulAdd(hn::Set(d, kRootHalf), odd_near, hn::Mul(hn::Set(d, kRoot), odd_far));
    to[2 * T] = hn::MulAdd(hn::Set(d, 0.5f), near, hn::Add(far, far));
    to[3 * T] =
        hn::MulAdd(hn::Set(d, kRootHalf / 2), odd_near, hn::MulAdd(hn::Set(d, 2 * kRoot), odd_far, from[5 * S]));
  }
}
// Its transpose: two gradients to four points.
template <int S, int T, class V>
HWY_INLINE void output_line_transposed(const V* from, V* to) {
  const V a = from[0], b = from[S];
  to[0] = a;
  to[T] = hn::Add(a, b);
  to[2 * T] = hn::Sub(a, b);
  to[3 * T] = hn::Neg(b);
}
// Three taps to the points of a line.
template <int kSide, int S, int T>
HWY_INLINE void weight_line(const VF* from, VF* to) {
  const VF a = from[0], b = from[S], c = from[2 * S];
  if constexpr (kSide == 2) {
    const VF ac = hn::Add(a, c);
    to[0] = a;
    to[T] = half(hn::Add(ac, b));
    to[2 * T] = half(hn::Sub(ac, b));
    to[3 * T] = c;
  } else {
    const DF d;
    const VF near = hn::Mul(hn::Set(d, -1 / 1.5f), hn::MulAdd(hn::Set(d, 0.5f), c, a)),
             odd_near = hn::Mul(hn::Set(d, -kRootHalf / 1.5f), b),
             far = hn::Mul(hn::Set(d, 1 / 6.f), hn::MulAdd(hn::Set(d, 2.f), c, a)),
             odd_far = hn::Mul(hn::Set(d, kRoot / 6), b);
    to[0] = a;
    to[T] = hn::Add(near, odd_near);
    to[2 * T] = hn::Sub(near, odd_near);
    to[3 * T] = hn::Add(far, odd_far);
    to[4 * T] = hn::Sub(far, odd_far);
    to[5 * T] = c;
  }
}
// Its transpose: four points to three taps.
template <int S, int T, class V>
HWY_INLINE void weight_line_transposed(const V* from, V* to) {
  const V a = from[0], b = from[S], c = from[2 * S], d = from[3 * S];
  const V sum = half(hn::Add(b, c));
  to[0] = hn::Add(a, sum);
  to[T] = half(hn::Sub(b, c));
  to[2 * T] = hn::Add(sum, d);
}

// The points of one tile, `plane` floats from point to point, `step` from 16 channels to the next. `zeros` holds c.
template <int kSide>
HWY_INLINE void tile_of_input(const TiledImage& in, const float* x, int64_t tile, const float* zeros, float* points,
                              int64_t plane, int64_t step) {
  constexpr int kIn = kSide + 2;
  const DF d;
  const TileAt at(in, tile);
  const float* from[kIn * kIn];
  for (int i = 0; i < kIn * kIn; ++i) {
    const int64_t y = at.y + i / kIn, z = at.x + i % kIn;
    const bool inside = y >= 0 && y < in.h && z >= 0 && z < in.w;
    from[i] = inside ? x + ((at.n * in.h + y) * in.w + z) * in.c : zeros;
  }
  for (int64_t c = 0; c < in.c; c += kLanes) {
    float* HWY_RESTRICT to = points + c / 16 * step + c % 16;
    VF u[kIn * kIn];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      VF v[kIn * kIn];
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) v[kIn * j + i] = hn::LoadU(d, from[kIn * j + i] + c);
      input_line<kSide, kIn>(v + i, u + i);
    }
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) {
      VF v[kIn];
      input_line<kSide, 1>(u + kIn * i, v);
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) hn::StoreU(v[j], d, to + (kIn * i + j) * plane);
    }
  }
}

// Tiles [b, e) in rows: points[16][tile - b][c].
void tiles_of_input(const TiledImage& in, const float* x, int64_t b, int64_t e, const float* zeros, float* points,
                    int64_t plane) {
  for (int64_t t = b; t < e; ++t, points += in.c) tile_of_input<2>(in, x, t, zeros, points, plane, 16);
}

// Tiles [b, e) of a block, in lines: what multiply_lines takes as rows.
template <int kSide>
void lines_of_input(const TiledImage& in, const float* x, const TileBlock& k, int64_t b, int64_t e,
                    const float* zeros) {
  const RowTiles rows(k.count);
  for (int64_t t = 0; t < rows.count; ++t) {
    const int64_t first = rows.begin(t), mr = rows.begin(t + 1) - first;
    for (int64_t i = std::max(b, first); i < std::min(e, first + mr); ++i)
      tile_of_input<kSide>(in, x, k.first + i, zeros, k.from + first * in.c + (i - first) * kLine, k.count * in.c,
                           mr * kLine);
  }
}
void input_lines(const TiledImage& in, const float* x, const TileBlock& k, int64_t b, int64_t e, const float* zeros) {
  (in.side == 2 ? lines_of_input<2> : lines_of_input<4>)(in, x, k, b, e, zeros);
}

// Products of the points [p0, p1) for the output channels [j0, j1) of `outs`; j0 starts a panel.
void multiply_points(const TileBlock& k, int64_t channels, int64_t outs, const float* weights, int64_t p0, int64_t p1,
                     int64_t j0, int64_t j1) {
  const RowTiles rows(k.count);
  const int64_t panels = (outs + kNR - 1) / kNR, block = line_block(channels);
  for (int64_t p = p0; p < p1; ++p)
    for (int64_t c = 0; c < channels; c += block)
      multiply_lines(rows, j1 - j0, std::min(block, channels - c), k.from + p * k.count * channels, channels, c, kLine,
                     weights + (p * panels * kNR + j0) * channels + c * kNR, channels * kNR, 0, j0,
                     k.to + p * k.count * outs, outs, {.add = c > 0}, nullptr);
}

// Rows [r0, r1) of the points of one panel, from its taps, [channel][9][kNR]. Points, [channel][kNR] each, are
// points_apart from each other: they are written side by side, and a row more keeps them out of the same cache lines.
constexpr int64_t points_apart(int64_t channels) { return (channels + 1) * kNR; }
template <int kSide>
void points_of_taps(const float* HWY_RESTRICT taps, int64_t channels, int64_t r0, int64_t r1,
                    float* HWY_RESTRICT points) {
  constexpr int kIn = kSide + 2;
  const DF d;
  points -= r0 * kIn * points_apart(channels);
  for (int64_t c = 0; c < channels; ++c, taps += 8 * kNR)
    for (int64_t v = 0; v < kNR; v += kLanes, taps += kLanes) {
      VF g[9], s[3 * kIn];
#pragma GCC unroll 9
      for (int i = 0; i < 9; ++i) g[i] = hn::Load(d, taps + i * kNR);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) weight_line<kSide, 3, 3>(g + i, s + i);
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) {
        if (i < r0 || i >= r1) continue;
        VF u[kIn];
        weight_line<kSide, 1, 1>(s + 3 * i, u);
#pragma GCC unroll 6
        for (int j = 0; j < kIn; ++j) hn::Store(u[j], d, points + (kIn * i + j) * points_apart(channels) + c * kNR + v);
      }
    }
}

// The same products for points [p0, p1) and one panel, that of output channel j0, from the weight's taps: points of
// some channels at a time, in whole rows of them, which are gone after their multiply-adds. Sums go on where they
// stopped, so they are those of whole points. The taps that come next are fetched meanwhile.
void multiply_taps(const TileBlock& k, int64_t side, int64_t channels, int64_t outs, const float* weights, int64_t p0,
                   int64_t p1, int64_t j0) {
  const RowTiles rows(k.count);
  const int64_t in = side + 2, r0 = p0 / in, r1 = (p1 + in - 1) / in;
  const int64_t block = line_block(channels), cols = std::min<int64_t>(kNR, outs - j0);
  // Several blocks are added to each other, so each is one piece.
  const int64_t most = block < channels ? block : std::min<int64_t>(block, 64);
  float* points = scratch(Scratch::PackB, (r1 - r0) * in * points_apart(most));
  const float *taps = weights + j0 * channels * 9, *end = weights + (outs + kNR - 1) / kNR * kNR * channels * 9;
  // The taps of the next channels, 9 * most * kNR floats of them, are fetched evenly by all steps of these.
  const int64_t steps = (p1 - p0) * rows.count * most, step = (9 * most * kNR + steps - 1) / steps;
  for (int64_t c = 0, count; c < channels; c += count) {
    count = std::min(most, channels - c);
    (side == 2 ? points_of_taps<2> : points_of_taps<4>)(taps, count, r0, r1, points);
    taps += count * 9 * kNR;
    const LineSums sums{.add = block < channels && c > 0, .resume = block == channels && c > 0};
    for (int64_t p = p0; p < p1; ++p) {
      const float* ahead = taps + (p - p0) * rows.count * count * step;
      multiply_lines(rows, cols, count, k.from + p * k.count * channels, channels, c, kLine,
                     points + (p - r0 * in) * points_apart(count), 0, 0, j0, k.to + p * k.count * outs, outs, sums,
                     nullptr, {ahead < end ? ahead : nullptr, step});
    }
  }
}

// The outputs of the tiles [b, e) of a block from their points.
template <int kSide>
void outputs_of(const TiledImage& out, const TileBlock& k, int64_t b, int64_t e, float* y, const Epilogue* done) {
  constexpr int kIn = kSide + 2;
  const DF d;
  const MF all = hn::FirstN(d, kLanes);
  const Epilogue none;
  const int64_t plane = k.count * out.c;
  for (int64_t t = b; t < e; ++t) {
    const TileAt at(out, k.first + t);
    const float* points = k.to + t * out.c;
    const int64_t pixel = (at.n * out.h + at.y) * out.w + at.x;
    const int64_t rows = std::min<int64_t>(kSide, out.h - at.y), cols = std::min<int64_t>(kSide, out.w - at.x);
    for (int64_t c = 0; c < out.c; c += kLanes) {
      VF s[kIn * kSide], v[kSide];
      const ChannelSteps steps(done ? *done : none, c, all, kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < kIn; ++i) {
        VF m[kIn * kIn];
#pragma GCC unroll 6
        for (int j = 0; j < kIn; ++j) m[kIn * j + i] = hn::LoadU(d, points + (kIn * j + i) * plane + c);
        output_line<kSide, kIn, kIn>(m + i, s + i);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kSide; ++i) {
        if (i >= rows) break;
        output_line<kSide, 1, 1>(s + kIn * i, v);
        const int64_t to = (pixel + i * out.w) * out.c + c;
        if (done)
          steps.all(v, done->add,
                    [&](int j) HWY_ATTR { return j < cols ? hn::LoadU(d, done->add + to + j * out.c) : hn::Zero(d); });
#pragma GCC unroll 4
        for (int j = 0; j < kSide; ++j) {
          if (j >= cols) break;
          hn::StoreU(v[j], d, y + to + j * out.c);
        }
      }
    }
    if (done && done->row)
      for (int64_t i = 0; i < rows; ++i) done->finish(y + (pixel + i * out.w) * out.c, cols * out.c);
  }
}
void outputs_of_tiles(const TiledImage& out, const TileBlock& k, int64_t b, int64_t e, float* y, const Epilogue* done) {
  (out.side == 2 ? outputs_of<2> : outputs_of<4>)(out, k, b, e, y, done);
}

// The points that the tiles' output gradients belong to: outputs_of_tiles transposed.
void tiles_of_gradient(const TiledImage& out, const float* dy, int64_t b, int64_t e, const float* zeros, float* points,
                       int64_t plane) {
  const DF d;
  for (int64_t t = b; t < e; ++t, points += out.c) {
    const TileAt at(out, t);
    const float* first = dy + ((at.n * out.h + at.y) * out.w + at.x) * out.c;
    const int64_t row = out.w * out.c;
    const bool right = at.x + 1 < out.w, below = at.y + 1 < out.h;
    const float* from[4] = {first, right ? first + out.c : zeros, below ? first + row : zeros,
                            right && below ? first + row + out.c : zeros};
    for (int64_t c = 0; c < out.c; c += kLanes) {
      VF v[4], s[8], m[kTilePoints];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = hn::LoadU(d, from[i] + c);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) output_line_transposed<2, 2>(v + i, s + i);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) output_line_transposed<1, 1>(s + 2 * i, m + 4 * i);
#pragma GCC unroll 16
      for (int i = 0; i < kTilePoints; ++i) hn::StoreU(m[i], d, points + i * plane + c);
    }
  }
}

// Lanes of weights [.., .., 3, 3], each `step` filters from the last.
HWY_INLINE hn::Vec<DI> filters(int64_t step) {
  return hn::Mul(hn::Iota(DI(), 0), hn::Set(DI(), static_cast<int32_t>(9 * step)));
}

// The points of kLanes filters, to[..] `plane` apart; of filters rotated by half a turn for the adjoint.
template <int kSide, class Tap>
HWY_INLINE void points_of_filters(Tap tap, bool rotated, float* to, int64_t plane) {
  constexpr int kIn = kSide + 2;
  const DF d;
  VF g[9], s[3 * kIn], u[kIn * kIn];
#pragma GCC unroll 9
  for (int i = 0; i < 9; ++i) g[i] = tap(i);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) weight_line<kSide, 3, 3>(g + i, s + i);
#pragma GCC unroll 6
  for (int i = 0; i < kIn; ++i) weight_line<kSide, 1, 1>(s + 3 * i, u + kIn * i);
  // Turning the taps around exchanges the outer points of each line.
  static constexpr int kTurned[4] = {3, 1, 2, 0};
#pragma GCC unroll 36
  for (int i = 0; i < kIn * kIn; ++i)
    hn::StoreU(u[i], d, to + (kSide == 2 && rotated ? kTurned[i / 4 % 4] * 4 + kTurned[i % 4] : i) * plane);
}

// Of a product from c channels to oc; of the outputs those in [b, e). Filters of neighbouring outputs lie a page or so
// apart: they are turned around a few channels at a time.
template <int kSide>
void filter_points_forward(const float* wt, int64_t oc, int64_t channels, int64_t b, int64_t e, float* points) {
  constexpr int64_t kTogether = 16;
  HWY_ALIGN float taps[kTogether * 9 * kLanes];
  const int64_t plane = (oc + kNR - 1) / kNR * kNR * channels;
  for (; b < e; b += kLanes)
    for (int64_t k0 = 0; k0 < channels; k0 += kTogether) {
      transpose(wt + (b * channels + k0) * 9, channels * 9, kLanes, kTogether * 9, taps, kLanes);
      for (int64_t k = 0; k < kTogether; ++k)
        points_of_filters<kSide>([&](int i) HWY_ATTR { return hn::Load(DF(), taps + (k * 9 + i) * kLanes); }, false,
                                 points + b / kNR * kNR * channels + (k0 + k) * kNR + b % kNR, plane);
    }
}

// Panels of the points of wt [oc, c, 3, 3]: a product from c channels to oc, or rotated, for the adjoint, from oc to c.
// Of the channels that it goes to those in [b, e).
template <int kSide>
void filter_points(const float* wt, int64_t oc, int64_t channels, int64_t b, int64_t e, bool adjoint, float* points) {
  const int64_t from = adjoint ? oc : channels, to = adjoint ? channels : oc;
  const int64_t plane = (to + kNR - 1) / kNR * kNR * from;
  const auto index = filters(1);
  if (!adjoint) return filter_points_forward<kSide>(wt, oc, channels, b, e, points);
  for (; b < e; b += kLanes)
    for (int64_t k = 0; k < from; ++k)
      points_of_filters<kSide>([&](int i)
                                   HWY_ATTR { return hn::GatherIndex(DF(), wt + (k * channels + b) * 9 + i, index); },
                               true, points + b / kNR * kNR * from + k * kNR + b % kNR, plane);
}
void points_of_weights(int64_t side, const float* wt, int64_t oc, int64_t channels, int64_t b, int64_t e, bool adjoint,
                       float* points) {
  (side == 2 ? filter_points<2> : filter_points<4>)(wt, oc, channels, b, e, adjoint, points);
}

// dw [oc, c, 3, 3] of the outputs [b, e) from the gradient of points[16][o][c].
void weights_of_points(const float* points, int64_t plane, int64_t channels, int64_t b, int64_t e, float* dw) {
  const DF d;
  const auto index = filters(1);
  for (int64_t o = b; o < e; ++o)
    for (int64_t c = 0; c < channels; c += kLanes) {
      VF u[kTilePoints], s[12], g[9];
#pragma GCC unroll 16
      for (int i = 0; i < kTilePoints; ++i) u[i] = hn::LoadU(d, points + i * plane + o * channels + c);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) weight_line_transposed<4, 4>(u + i, s + i);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) weight_line_transposed<1, 1>(s + 4 * i, g + 3 * i);
      float* taps = dw + (o * channels + c) * 9;
#pragma GCC unroll 9
      for (int i = 0; i < 9; ++i) hn::ScatterIndex(g[i], d, taps + i, index);
    }
}

void lines_width(int64_t* cols) { *cols = kNR; }

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(tiles_of_input);
HWY_EXPORT(input_lines);
HWY_EXPORT(multiply_points);
HWY_EXPORT(multiply_taps);
HWY_EXPORT(outputs_of_tiles);
HWY_EXPORT(tiles_of_gradient);
HWY_EXPORT(points_of_weights);
HWY_EXPORT(weights_of_points);
HWY_EXPORT(lines_width);

constexpr int64_t kTilesOfSum = 512;  // one k-block of the product
constexpr int64_t kFewTiles = 56;     // rows below which a product is slow

const float* zeros(int64_t floats) {
  float* z = scratch(Scratch::Planes, floats);
  std::fill_n(z, floats, 0.f);
  return z;
}

void transform_weights(const ConvGeom& g, const float* wt, bool adjoint, int64_t side, float* points) {
  const int64_t to = adjoint ? g.c : g.o, from = adjoint ? g.o : g.c;
  parallel_for(to / 16, value_grain(16 * points_of(side) * from), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(points_of_weights)(side, wt, g.o, g.c, b * 16, e * 16, adjoint, points);
  });
}
int64_t weight_floats(int64_t each, int64_t from, int64_t to) { return each * from * ((to + 31) / 32 * 32); }

// Of a weight: its points, or its taps, of which points are made on the way.
struct TileWeights {
  const float* data;
  bool taps;
};
TileWeights adjoint_weights(const ConvGeom& g, const float* wt) {
  float* points = scratch(Scratch::Weight, weight_floats(kTilePoints, g.o, g.c));
  transform_weights(g, wt, true, 2, points);
  return {points, false};
}

// One step after the other, each on all threads: where there are too few tiles to give each thread a block of its own,
// or the points of the weight are made on the way, which is done once.
void multiply_few_tiles(const TiledImage& in, const TiledImage& out, int64_t tiles, const float* x,
                        const TileWeights& w, float* y, const Epilogue* done) {
  const int64_t points = points_of(out.side);
  const TileBlock k{0, tiles, scratch(Scratch::Col, points * tiles * in.c),
                    scratch(Scratch::Out, points * tiles * out.c)};
  auto grain = [&](int64_t channels) { return value_grain(2 * points * channels); };
  parallel_for(tiles, grain(in.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(input_lines)(in, x, k, b, e, zeros(in.c));
  });
  int64_t width;
  HWY_DYNAMIC_DISPATCH(lines_width)(&width);
  const int64_t panels = (out.c + width - 1) / width;
  if (w.taps) {
    // A panel in several parts where whole ones would not keep all threads busy to the end; a part makes whole rows.
    const int64_t cuts = std::clamp<int64_t>(3 * num_threads() / panels, 1, 2 * (out.side + 2));
    parallel_for(panels * cuts, 1, [&](int64_t b, int64_t e) {
      for (; b < e; ++b) HWY_DYNAMIC_DISPATCH(multiply_taps)
      (k, out.side, in.c, out.c, w.data, points * (b % cuts) / cuts, points * (b % cuts + 1) / cuts, b / cuts * width);
    });
  } else {
    // Points in several parts where whole ones would not keep all threads busy to the end.
    const int64_t cuts = std::clamp<int64_t>(8 * num_threads() / points, 1, panels);
    parallel_for(points * cuts, fma_grain(tiles * in.c * out.c / cuts), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        const int64_t p = b / cuts, j = b % cuts;
        HWY_DYNAMIC_DISPATCH(multiply_points)
        (k, in.c, out.c, w.data, p, p + 1, panels * j / cuts * width, std::min(out.c, panels * (j + 1) / cuts * width));
      }
    });
  }
  parallel_for(tiles, grain(out.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(outputs_of_tiles)(out, k, b, e, y, done);
  });
}

// y = the sum over channels of x's tiles times the points of a weight.
void multiply_tiles(const TiledImage& in, const TiledImage& out, int64_t n, const float* x, const TileWeights& w,
                    float* y, const Epilogue* done) {
  const int64_t tiles = n * out.rows * out.cols, threads = num_threads(), points = points_of(out.side);
  if (w.taps || (threads > 1 && tiles < kFewTiles * threads)) return multiply_few_tiles(in, out, tiles, x, w, y, done);
  // What a thread works on at a time: a little more than its own cache holds.
  const int64_t floats = machine().l2 * 3 / 2 / int64_t{sizeof(float)};
  int64_t block = std::max(kFewTiles, floats / (points * (in.c + out.c)));
  const int64_t blocks = ((tiles + block - 1) / block + threads - 1) / threads * threads;
  block = (tiles + blocks - 1) / blocks;
  parallel_for(blocks, 1, [&](int64_t b, int64_t e) {
    TileBlock k{0, 0, scratch(Scratch::Col, points * block * in.c), scratch(Scratch::Out, points * block * out.c)};
    const float* none = zeros(in.c);
    for (; b < e; ++b) {
      k.first = b * block;
      k.count = std::min(block, tiles - k.first);
      if (k.count <= 0) break;
      HWY_DYNAMIC_DISPATCH(input_lines)(in, x, k, 0, k.count, none);
      HWY_DYNAMIC_DISPATCH(multiply_points)(k, in.c, out.c, w.data, 0, points, 0, out.c);
      HWY_DYNAMIC_DISPATCH(outputs_of_tiles)(out, k, 0, k.count, y, done);
    }
  });
}

}  // namespace

int64_t winograd_floats(const ConvGeom& g, int64_t side) {
  return weight_floats(cost::winograd_keeps_taps(g, side) ? 9 : points_of(side), g.c, g.o);
}
void winograd_last_weights(const ConvGeom& g, const float* wt, float* to, int64_t side) {
  if (!cost::winograd_keeps_taps(g, side)) return transform_weights(g, wt, false, side, to);
  int64_t width;
  HWY_DYNAMIC_DISPATCH(lines_width)(&width);
  pack_weight({g.o, g.c, 9, width, g.c * 9 * width, 9 * width, width}, wt, to);
}
void winograd_last_fwd_prepared(const ConvGeom& g, const float* x, const float* weight, float* y, const Epilogue* e,
                                int64_t side) {
  const int64_t rows = (g.oh + side - 1) / side, cols = (g.ow + side - 1) / side;
  multiply_tiles({g.h, g.w, g.c, rows, cols, g.ph, g.pw, side}, {g.oh, g.ow, g.o, rows, cols, 0, 0, side}, g.n, x,
                 {weight, cost::winograd_keeps_taps(g, side)}, y, e);
}
void winograd_last_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e, int64_t side) {
  float* weight = scratch(Scratch::Weight, winograd_floats(g, side));
  winograd_last_weights(g, wt, weight, side);
  winograd_last_fwd_prepared(g, x, weight, y, e, side);
}

void winograd_last_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const int64_t rows = (g.h + 1) / 2, cols = (g.w + 1) / 2;
  multiply_tiles({g.oh, g.ow, g.o, rows, cols, 2 - g.ph, 2 - g.pw}, {g.h, g.w, g.c, rows, cols, 0, 0}, g.n, dy,
                 adjoint_weights(g, wt), dx, nullptr);
}

void winograd_last_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const int64_t rows = (g.oh + 1) / 2, cols = (g.ow + 1) / 2, tiles = g.n * rows * cols, plane = g.c * g.o;
  const TiledImage in{g.h, g.w, g.c, rows, cols, g.ph, g.pw}, out{g.oh, g.ow, g.o, rows, cols, 0, 0};
  const int64_t most = std::min(tiles, kTilesOfSum);
  float* sums = scratch(Scratch::Weight, kTilePoints * plane);
  float* left = scratch(Scratch::Out, kTilePoints * most * g.o);
  float* right = scratch(Scratch::Col, kTilePoints * most * g.c);
  for (int64_t first = 0; first < tiles; first += kTilesOfSum) {
    const int64_t count = std::min(kTilesOfSum, tiles - first);
    parallel_for(count, value_grain(kTilePoints * (g.c + g.o)), [&](int64_t b, int64_t e) {
      const float* none = zeros(std::max(g.c, g.o));
      HWY_DYNAMIC_DISPATCH(tiles_of_input)(in, x, first + b, first + e, none, right + b * g.c, count * g.c);
      HWY_DYNAMIC_DISPATCH(tiles_of_gradient)(out, dy, first + b, first + e, none, left + b * g.o, count * g.o);
    });
    sgemm_batched(kTilePoints, true, false, g.o, g.c, count, left, g.o, count * g.o, right, g.c, count * g.c, sums, g.c,
                  plane, first > 0);
  }
  parallel_for(g.o, value_grain(kTilePoints * g.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(weights_of_points)(sums, plane, g.c, b, e, dw);
  });
}

}  // namespace mge::simd
#endif
