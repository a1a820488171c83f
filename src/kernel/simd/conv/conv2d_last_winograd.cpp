// 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): outputs in tiles of 2x2 from 4x4 inputs. Tiles and weights
// are transformed by additions and halvings, after which a convolution is 16 matrix products over all tiles, with 4/9
// of the multiplications; the adjoints are the same products transposed. The transforms of inputs (B), weights (G) and
// outputs (A) are those of Lavin and Gray (2015).
//
// Every sum is taken in an order that depends on the geometry alone: tiles are independent of each other in the forward
// pass and in dx, and the tiles of dw come in blocks of kTilesOfSum.
#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/epilogue.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#ifndef MGE_CONV2D_LAST_WINOGRAD_ONCE
#define MGE_CONV2D_LAST_WINOGRAD_ONCE
namespace mge::simd {
namespace {
constexpr int kPoints = 16;  // of a transformed tile

// An image of `c` channels cut into tiles: tile (ty, tx) starts at row 2 ty - top, column 2 tx - left.
struct TiledImage {
  int64_t h, w, c, rows, cols, top, left;
};
struct TileAt {
  int64_t n, y, x;
  TileAt(const TiledImage& i, int64_t tile)
      : n(tile / (i.rows * i.cols)), y(tile / i.cols % i.rows * 2 - i.top), x(tile % i.cols * 2 - i.left) {}
};
}  // namespace
}  // namespace mge::simd
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_winograd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
using DI = hn::RebindToSigned<DF>;

HWY_INLINE VF half(VF v) { return hn::Mul(hn::Set(DF(), 0.5f), v); }

// One dimension of each transform: `to` and `from` step by S from element to element.
template <int S, class V>
HWY_INLINE void input_line(const V* from, V* to) {
  const V a = from[0], b = from[S], c = from[2 * S], d = from[3 * S];
  to[0] = hn::Sub(a, c);
  to[S] = hn::Add(b, c);
  to[2 * S] = hn::Sub(c, b);
  to[3 * S] = hn::Sub(b, d);
}
// Four points to two outputs.
template <int S, int T, class V>
HWY_INLINE void output_line(const V* from, V* to) {
  const V a = from[0], b = from[S], c = from[2 * S], d = from[3 * S];
  to[0] = hn::Add(hn::Add(a, b), c);
  to[T] = hn::Sub(hn::Sub(b, c), d);
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
// Three taps to four points.
template <int S, int T, class V>
HWY_INLINE void weight_line(const V* from, V* to) {
  const V a = from[0], b = from[S], c = from[2 * S], ac = hn::Add(a, c);
  to[0] = a;
  to[T] = half(hn::Add(ac, b));
  to[2 * T] = half(hn::Sub(ac, b));
  to[3 * T] = c;
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

// points[16][tile - b][c] of the tiles [b, e); `plane` floats from point to point. `zeros` holds c of them.
void tiles_of_input(const TiledImage& in, const float* x, int64_t b, int64_t e, const float* zeros, float* points,
                    int64_t plane) {
  const DF d;
  for (int64_t t = b; t < e; ++t, points += in.c) {
    const TileAt at(in, t);
    const float* from[kPoints];
    for (int i = 0; i < kPoints; ++i) {
      const int64_t y = at.y + i / 4, z = at.x + i % 4;
      const bool inside = y >= 0 && y < in.h && z >= 0 && z < in.w;
      from[i] = inside ? x + ((at.n * in.h + y) * in.w + z) * in.c : zeros;
    }
    for (int64_t c = 0; c < in.c; c += kLanes) {
      VF v[kPoints], u[kPoints];
#pragma GCC unroll 16
      for (int i = 0; i < kPoints; ++i) v[i] = hn::LoadU(d, from[i] + c);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) input_line<4>(v + i, u + i);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) input_line<1>(u + 4 * i, v + 4 * i);
#pragma GCC unroll 16
      for (int i = 0; i < kPoints; ++i) hn::StoreU(v[i], d, points + i * plane + c);
    }
  }
}

// The outputs of the tiles [b, e) from their points.
void outputs_of_tiles(const TiledImage& out, const float* points, int64_t plane, int64_t b, int64_t e, float* y) {
  const DF d;
  for (int64_t t = b; t < e; ++t, points += out.c) {
    const TileAt at(out, t);
    float* first = y + ((at.n * out.h + at.y) * out.w + at.x) * out.c;
    const int64_t row = out.w * out.c;
    const bool right = at.x + 1 < out.w, below = at.y + 1 < out.h;
    for (int64_t c = 0; c < out.c; c += kLanes) {
      VF m[kPoints], s[8], v[4];
#pragma GCC unroll 16
      for (int i = 0; i < kPoints; ++i) m[i] = hn::LoadU(d, points + i * plane + c);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) output_line<4, 4>(m + i, s + i);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) output_line<1, 1>(s + 4 * i, v + 2 * i);
      hn::StoreU(v[0], d, first + c);
      if (right) hn::StoreU(v[1], d, first + out.c + c);
      if (below) hn::StoreU(v[2], d, first + row + c);
      if (right && below) hn::StoreU(v[3], d, first + row + out.c + c);
    }
  }
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
      VF v[4], s[8], m[kPoints];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = hn::LoadU(d, from[i] + c);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) output_line_transposed<2, 2>(v + i, s + i);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) output_line_transposed<1, 1>(s + 2 * i, m + 4 * i);
#pragma GCC unroll 16
      for (int i = 0; i < kPoints; ++i) hn::StoreU(m[i], d, points + i * plane + c);
    }
  }
}

// Lanes of weights [.., .., 3, 3], each `step` filters from the last.
HWY_INLINE hn::Vec<DI> filters(int64_t step) {
  return hn::Mul(hn::Iota(DI(), 0), hn::Set(DI(), static_cast<int32_t>(9 * step)));
}

// The points of kLanes filters, to[16] `plane` apart; of filters rotated by half a turn for the adjoint.
HWY_INLINE void points_of_filters(const float* taps, hn::Vec<DI> index, bool rotated, float* to, int64_t plane) {
  const DF d;
  VF g[9], s[12], u[kPoints];
#pragma GCC unroll 9
  for (int i = 0; i < 9; ++i) g[i] = hn::GatherIndex(d, taps + i, index);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) weight_line<3, 3>(g + i, s + i);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) weight_line<1, 1>(s + 3 * i, u + 4 * i);
  // Turning the taps around exchanges the outer points of each line.
  static constexpr int kTurned[4] = {3, 1, 2, 0};
#pragma GCC unroll 16
  for (int i = 0; i < kPoints; ++i)
    hn::StoreU(u[i], d, to + (rotated ? kTurned[i / 4] * 4 + kTurned[i % 4] : i) * plane);
}

// wt [oc, c, 3, 3], outputs [b, e): points[16][c][o], or rotated, for the adjoint, points[16][o][c].
void points_of_weights(const float* wt, int64_t oc, int64_t channels, int64_t b, int64_t e, bool adjoint,
                       float* points) {
  const int64_t plane = oc * channels;
  if (adjoint) {
    const auto index = filters(1);
    for (int64_t i = b * channels; i < e * channels; i += kLanes)
      points_of_filters(wt + i * 9, index, true, points + i, plane);
  } else {
    const auto index = filters(channels);
    for (; b < e; b += kLanes)
      for (int64_t c = 0; c < channels; ++c)
        points_of_filters(wt + (b * channels + c) * 9, index, false, points + c * oc + b, plane);
  }
}

// dw [oc, c, 3, 3] of the outputs [b, e) from the gradient of points[16][o][c].
void weights_of_points(const float* points, int64_t plane, int64_t channels, int64_t b, int64_t e, float* dw) {
  const DF d;
  const auto index = filters(1);
  for (int64_t o = b; o < e; ++o)
    for (int64_t c = 0; c < channels; c += kLanes) {
      VF u[kPoints], s[12], g[9];
#pragma GCC unroll 16
      for (int i = 0; i < kPoints; ++i) u[i] = hn::LoadU(d, points + i * plane + o * channels + c);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) weight_line_transposed<4, 4>(u + i, s + i);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) weight_line_transposed<1, 1>(s + 4 * i, g + 3 * i);
      float* taps = dw + (o * channels + c) * 9;
#pragma GCC unroll 9
      for (int i = 0; i < 9; ++i) hn::ScatterIndex(g[i], d, taps + i, index);
    }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(tiles_of_input);
HWY_EXPORT(outputs_of_tiles);
HWY_EXPORT(tiles_of_gradient);
HWY_EXPORT(points_of_weights);
HWY_EXPORT(weights_of_points);

constexpr int64_t kTilesOfSum = 512;  // one k-block of the product
constexpr int64_t kFewTiles = 56;     // rows below which a product is slow

const float* zeros(int64_t floats) {
  float* z = scratch(Scratch::Planes, floats);
  std::fill_n(z, floats, 0.f);
  return z;
}

void transform_weights(const ConvGeom& g, const float* wt, bool adjoint, float* points) {
  parallel_for(g.o / 16, value_grain(16 * kPoints * g.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(points_of_weights)(wt, g.o, g.c, b * 16, e * 16, adjoint, points);
  });
}
const float* transformed_weights(const ConvGeom& g, const float* wt, bool adjoint) {
  float* points = scratch(Scratch::Weight, winograd_floats(g));
  transform_weights(g, wt, adjoint, points);
  return points;
}

// What follows the sums, on the outputs of the tiles [b, e), which were just written.
void finish_tiles(const TiledImage& out, int64_t b, int64_t e, float* y, const Epilogue* done) {
  if (!done) return;
  for (int64_t next; b < e; b = next) {
    next = std::min(e, (b / out.cols + 1) * out.cols);  // tiles of one row lie side by side
    const TileAt at(out, b);
    const int64_t end = std::min(out.w, at.x + 2 * (next - b));
    for (int64_t row = at.y; row < std::min(out.h, at.y + 2); ++row) {
      const int64_t line = (at.n * out.h + row) * out.w;
      epilogue_last(*done, line + at.x, line + end, out.c, y);
    }
  }
}

// The same for too few tiles to give each thread a product of its own: one step after the other, each on all threads.
void multiply_few_tiles(const TiledImage& in, const TiledImage& out, int64_t tiles, const float* x,
                        const float* weights, float* y, const Epilogue* done) {
  float* from = scratch(Scratch::Col, kPoints * tiles * in.c);
  float* to = scratch(Scratch::Out, kPoints * tiles * out.c);
  auto grain = [](int64_t channels) { return value_grain(2 * kPoints * channels); };
  parallel_for(tiles, grain(in.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(tiles_of_input)(in, x, b, e, zeros(in.c), from + b * in.c, tiles * in.c);
  });
  sgemm_batched(kPoints, false, false, tiles, out.c, in.c, from, in.c, tiles * in.c, weights, out.c, in.c * out.c, to,
                out.c, tiles * out.c, false);
  parallel_for(tiles, grain(out.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(outputs_of_tiles)(out, to + b * out.c, tiles * out.c, b, e, y);
    finish_tiles(out, b, e, y, done);
  });
}

// y = the sum over channels of x's tiles times weights[16][in.c][out.c].
void multiply_tiles(const TiledImage& in, const TiledImage& out, int64_t n, const float* x, const float* weights,
                    float* y, const Epilogue* done) {
  const int64_t tiles = n * out.rows * out.cols, threads = num_threads();
  if (threads > 2 && tiles < kFewTiles * threads) return multiply_few_tiles(in, out, tiles, x, weights, y, done);
  // What a thread works on at a time: a little more than its own cache holds.
  const int64_t floats = machine().l2 * 3 / 2 / int64_t{sizeof(float)};
  int64_t block = std::max(kFewTiles, floats / (kPoints * (in.c + out.c)));
  const int64_t blocks = ((tiles + block - 1) / block + threads - 1) / threads * threads;
  block = (tiles + blocks - 1) / blocks;
  parallel_for(blocks, 1, [&](int64_t b, int64_t e) {
    float* from = scratch(Scratch::Col, kPoints * block * in.c);
    float* to = scratch(Scratch::Out, kPoints * block * out.c);
    const float* none = zeros(in.c);
    for (; b < e; ++b) {
      const int64_t first = b * block, count = std::min(block, tiles - first);
      if (count <= 0) break;
      HWY_DYNAMIC_DISPATCH(tiles_of_input)(in, x, first, first + count, none, from, count * in.c);
      sgemm_batched(kPoints, false, false, count, out.c, in.c, from, in.c, count * in.c, weights, out.c, in.c * out.c,
                    to, out.c, count * out.c, false);
      HWY_DYNAMIC_DISPATCH(outputs_of_tiles)(out, to, count * out.c, first, first + count, y);
      finish_tiles(out, first, first + count, y, done);
    }
  });
}

}  // namespace

int64_t winograd_floats(const ConvGeom& g) { return kPoints * g.c * g.o; }
void winograd_last_weights(const ConvGeom& g, const float* wt, float* points) {
  transform_weights(g, wt, false, points);
}
void winograd_last_fwd_points(const ConvGeom& g, const float* x, const float* points, float* y, const Epilogue* e) {
  const int64_t rows = (g.oh + 1) / 2, cols = (g.ow + 1) / 2;
  multiply_tiles({g.h, g.w, g.c, rows, cols, g.ph, g.pw}, {g.oh, g.ow, g.o, rows, cols, 0, 0}, g.n, x, points, y, e);
}
void winograd_last_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  winograd_last_fwd_points(g, x, transformed_weights(g, wt, false), y, e);
}

void winograd_last_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const int64_t rows = (g.h + 1) / 2, cols = (g.w + 1) / 2;
  multiply_tiles({g.oh, g.ow, g.o, rows, cols, 2 - g.ph, 2 - g.pw}, {g.h, g.w, g.c, rows, cols, 0, 0}, g.n, dy,
                 transformed_weights(g, wt, true), dx, nullptr);
}

void winograd_last_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const int64_t rows = (g.oh + 1) / 2, cols = (g.ow + 1) / 2, tiles = g.n * rows * cols, plane = g.c * g.o;
  const TiledImage in{g.h, g.w, g.c, rows, cols, g.ph, g.pw}, out{g.oh, g.ow, g.o, rows, cols, 0, 0};
  const int64_t most = std::min(tiles, kTilesOfSum);
  float* sums = scratch(Scratch::Weight, kPoints * plane);
  float* left = scratch(Scratch::Out, kPoints * most * g.o);
  float* right = scratch(Scratch::Col, kPoints * most * g.c);
  for (int64_t first = 0; first < tiles; first += kTilesOfSum) {
    const int64_t count = std::min(kTilesOfSum, tiles - first);
    parallel_for(count, value_grain(kPoints * (g.c + g.o)), [&](int64_t b, int64_t e) {
      const float* none = zeros(std::max(g.c, g.o));
      HWY_DYNAMIC_DISPATCH(tiles_of_input)(in, x, first + b, first + e, none, right + b * g.c, count * g.c);
      HWY_DYNAMIC_DISPATCH(tiles_of_gradient)(out, dy, first + b, first + e, none, left + b * g.o, count * g.o);
    });
    sgemm_batched(kPoints, true, false, g.o, g.c, count, left, g.o, count * g.o, right, g.c, count * g.c, sums, g.c,
                  plane, first > 0);
  }
  parallel_for(g.o, value_grain(kPoints * g.c), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(weights_of_points)(sums, plane, g.c, b, e, dw);
  });
}

}  // namespace mge::simd
#endif
