// Convolution with SIMD lanes along the output row, reading padded planes in place: no im2col, no packing of the input.
// For groups with few output channels (depthwise, first layers), where packing would cost more than the sums.
#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_raw_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/conv2d_raw_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

#if MGE_REGISTERS_32
constexpr int kAccumulators = 24;  // of 32 registers
#else
constexpr int kAccumulators = 12;  // of 16
#endif
constexpr int kMaxOut = 6;  // output channels per tile

// One vector of output pixels: where its first tap reads, where it is stored, how many lanes count.
struct RowVector {
  int64_t src, dst;
  int lanes;
};

// NV vectors of pixels for MR output channels: y[i][vector] = sum over taps w[tap][i] * planes[vector + off[tap]].
template <int MR, int NV>
void row_tile(int64_t taps, const float* HWY_RESTRICT w, const float* HWY_RESTRICT planes,
              const int64_t* HWY_RESTRICT off, const RowVector* vec, int count, float* HWY_RESTRICT y, int64_t ldy) {
  const DF d;
  const float* src[NV];
#pragma GCC unroll 12
  for (int v = 0; v < NV; ++v) src[v] = planes + vec[std::min(v, count - 1)].src;
  VF acc[MR][NV];
#pragma GCC unroll 12
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 12
    for (int v = 0; v < NV; ++v) acc[i][v] = hn::Zero(d);
  for (int64_t k = 0; k < taps; ++k, w += MR) {
    VF xv[NV];
#pragma GCC unroll 12
    for (int v = 0; v < NV; ++v) xv[v] = hn::LoadU(d, src[v] + off[k]);
#pragma GCC unroll 12
    for (int i = 0; i < MR; ++i) {
      const VF wi = hn::Set(d, w[i]);
#pragma GCC unroll 12
      for (int v = 0; v < NV; ++v) acc[i][v] = hn::MulAdd(wi, xv[v], acc[i][v]);
    }
  }
#pragma GCC unroll 12
  for (int v = 0; v < NV; ++v) {
    if (v >= count) break;
    const MF m = hn::FirstN(d, vec[v].lanes);
#pragma GCC unroll 12
    for (int i = 0; i < MR; ++i) store_n(acc[i][v], m, y + i * ldy + vec[v].dst, vec[v].lanes);
  }
}

template <int MR>
constexpr int row_tile_vectors() {
  return std::min(8, kAccumulators / MR);
}

using RowTileFn = void (*)(int64_t, const float*, const float*, const int64_t*, const RowVector*, int, float*, int64_t);
template <int... I>
constexpr std::array<RowTileFn, kMaxOut> make_row_tiles(std::integer_sequence<int, I...>) {
  return {{row_tile<I + 1, row_tile_vectors<I + 1>()>...}};
}
template <int... I>
constexpr std::array<int, kMaxOut> make_row_widths(std::integer_sequence<int, I...>) {
  return {{row_tile_vectors<I + 1>()...}};
}
using OutSequence = std::make_integer_sequence<int, kMaxOut>;
inline constexpr auto kRowTiles = make_row_tiles(OutSequence());
inline constexpr auto kRowWidths = make_row_widths(OutSequence());

// Output channels of a group in equal tiles of at most kMaxOut.
struct OutTiles {
  int64_t m, count;
  explicit OutTiles(int64_t og) : m(og), count((og + kMaxOut - 1) / kMaxOut) {}
  int64_t begin(int64_t i) const { return m * i / count; }
};

inline int64_t list_vectors(const Planes& p, int64_t oy0, int64_t oy1, RowVector* dst) {
  RowVector* v = dst;
  for (int64_t oy = oy0; oy < oy1; ++oy)
    for (int64_t ox = 0; ox < p.g.ow; ox += kLanes)
      *v++ = {p.at(oy) + ox, oy * p.g.ow + ox, static_cast<int>(std::min<int64_t>(kLanes, p.g.ow - ox))};
  return v - dst;
}

void fwd_rows(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  const ConvDims dim(g);
  const OutTiles tiles(dim.og);
  float* weights = scratch(Scratch::Weight, g.o * dim.taps + kLanes);
  for (int64_t group = 0; group < g.groups; ++group)
    for (int64_t t = 0; t < tiles.count; ++t) {
      const int64_t o = group * dim.og + tiles.begin(t), mr = tiles.begin(t + 1) - tiles.begin(t);
      transpose(wt + o * dim.taps, dim.taps, mr, dim.taps, weights + o * dim.taps, mr);
    }
  // Pieces of rows whose padded planes stay in L1/L2.
  const int64_t row_floats = std::max<int64_t>(1, dim.cg * g.sh * (g.ow * g.sw + g.kw));
  const int64_t floats = machine().l2 / 16 / int64_t{sizeof(float)};
  const int64_t rows = std::clamp<int64_t>(floats / row_floats, std::min<int64_t>(8, g.oh), g.oh),
                pieces = (g.oh + rows - 1) / rows;
  const int64_t per_row = (g.ow + kLanes - 1) / kLanes;
  const int64_t work = dim.og * dim.taps * rows * g.ow;
  parallel_for(g.n * g.groups * pieces, fma_grain(2 * work), [&](int64_t begin, int64_t end) {
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::Col, 2 * dim.taps));
    auto* vectors = reinterpret_cast<RowVector*>(scratch(Scratch::PackA, sizeof(RowVector) / 4 * rows * per_row));
    int64_t listed = -1, count = 0;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / pieces / g.groups, group = t / pieces % g.groups, piece = t % pieces;
      const int64_t oy0 = piece * rows, oy1 = std::min(g.oh, oy0 + rows);
      const Planes p(g, oy0, oy1);
      float* planes = scratch(Scratch::Planes, p.size(dim.cg));
      p.fill(x + (image * g.c + group * dim.cg) * dim.in, dim.cg, planes);
      if (listed != piece) {
        p.offsets(dim.cg, off);
        count = list_vectors(p, oy0, oy1, vectors);
        listed = piece;
      }
      float* yg = y + (image * g.o + group * dim.og) * dim.out;
      for (int64_t i = 0; i < tiles.count; ++i) {
        const int64_t o = tiles.begin(i), mr = tiles.begin(i + 1) - o, width = kRowWidths[mr - 1];
        for (int64_t v = 0; v < count; v += width)
          kRowTiles[mr - 1](dim.taps, weights + (group * dim.og + o) * dim.taps, planes, off, vectors + v,
                            static_cast<int>(std::min(width, count - v)), yg + o * dim.out, dim.out);
      }
      if (e)
        for (int64_t o = group * dim.og; o < (group + 1) * dim.og; ++o)
          apply_epilogue(*e, o, (image * g.o + o) * dim.out + oy0 * g.ow, (oy1 - oy0) * g.ow, y);
    }
  });
}

// planes[row + off] += w * dy[row] for every tap and row: the adjoint with few channels per group and any stride.
void bwd_data_rows(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const ConvDims dim(g);
  const Planes p(g, 0, g.oh);
  const DF d;
  const int64_t work = dim.og * dim.taps * dim.out;
  parallel_for(g.n * g.groups, fma_grain(2 * work), [&](int64_t begin, int64_t end) {
    float* planes = scratch(Scratch::Planes, p.size(dim.cg));
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::Col, 2 * dim.taps));
    p.offsets(dim.cg, off);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / g.groups, group = t % g.groups;
      std::memset(planes, 0, dim.cg * p.plane * sizeof(float));
      for (int64_t o = group * dim.og; o < (group + 1) * dim.og; ++o)
        for (int64_t oy = 0; oy < g.oh; ++oy) {
          const float* HWY_RESTRICT row = dy + (image * g.o + o) * dim.out + oy * g.ow;
          for (int64_t ox = 0; ox < g.ow; ox += kLanes) {
            const int n = static_cast<int>(std::min<int64_t>(kLanes, g.ow - ox));
            const MF m = hn::FirstN(d, n);
            const VF v = load_n(m, row + ox, n);
            for (int64_t k = 0; k < dim.taps; ++k) {
              float* HWY_RESTRICT to = planes + p.at(oy) + off[k] + ox;
              store_n(hn::MulAdd(hn::Set(d, wt[o * dim.taps + k]), v, load_n(m, to, n)), m, to, n);
            }
          }
        }
      p.unfill(planes, dim.cg, dx + (image * g.c + group * dim.cg) * dim.in);
    }
  });
}

// sums[i][t] += over all pixels dy[i][pixel] * planes[pixel + off[t]], lanes kept apart. OC channels by T taps.
template <int OC, int T>
void weight_tile(const Planes& p, const float* planes, const int64_t* off, const float* dy, int64_t ldy,
                 float* HWY_RESTRICT sums, int64_t ld_sums) {
  const DF d;
  VF acc[OC][T];
#pragma GCC unroll 12
  for (int i = 0; i < OC; ++i)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) acc[i][t] = hn::Load(d, sums + i * ld_sums + t * kLanes);
  const int64_t ow = p.g.ow, full = ow / kLanes * kLanes, step = p.g.sh * p.pitch;
  const int rest = static_cast<int>(ow - full);
  const MF m = hn::FirstN(d, rest);
  const float* src[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) src[t] = planes + off[t];
  for (int64_t oy = 0; oy < p.g.oh; ++oy) {
    const float* HWY_RESTRICT row = dy + oy * ow;
    const int64_t at = oy * step;
    for (int64_t ox = 0; ox < full; ox += kLanes) {
      VF g[OC];
#pragma GCC unroll 12
      for (int i = 0; i < OC; ++i) g[i] = hn::LoadU(d, row + i * ldy + ox);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        const VF v = in_register(hn::LoadU(d, src[t] + at + ox));
#pragma GCC unroll 12
        for (int i = 0; i < OC; ++i) acc[i][t] = hn::MulAdd(g[i], v, acc[i][t]);
      }
    }
    if (rest) {
      VF g[OC];
#pragma GCC unroll 12
      for (int i = 0; i < OC; ++i) g[i] = load_n(m, row + i * ldy + full, rest);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        // Masked on both sides: 0 * x would turn a NaN or infinity beside the row into NaN.
        const VF v = in_register(hn::IfThenElseZero(m, hn::LoadU(d, src[t] + at + full)));
#pragma GCC unroll 12
        for (int i = 0; i < OC; ++i) acc[i][t] = hn::MulAdd(g[i], v, acc[i][t]);
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < OC; ++i)
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) hn::Store(acc[i][t], d, sums + i * ld_sums + t * kLanes);
}

using WeightTileFn = void (*)(const Planes&, const float*, const int64_t*, const float*, int64_t, float*, int64_t);
#if MGE_REGISTERS_32
constexpr int kTileOut = 6;
#else
constexpr int kTileOut = 2;
#endif
constexpr int kTileTaps = 4, kDepthTaps = 9;  // the second with a single output channel
template <int... I>
constexpr std::array<WeightTileFn, kTileOut * kTileTaps> make_weight_tiles(std::integer_sequence<int, I...>) {
  return {{weight_tile<I / kTileTaps + 1, I % kTileTaps + 1>...}};
}
template <int... I>
constexpr std::array<WeightTileFn, kDepthTaps> make_depth_tiles(std::integer_sequence<int, I...>) {
  return {{weight_tile<1, I + 1>...}};
}
inline constexpr auto kWeightTiles = make_weight_tiles(std::make_integer_sequence<int, kTileOut * kTileTaps>());
inline constexpr auto kDepthTiles = make_depth_tiles(std::make_integer_sequence<int, kDepthTaps>());

void bwd_weight_rows(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const ConvDims dim(g);
  const Planes p(g, 0, g.oh);
  const int64_t size = g.o * dim.taps;
  const int64_t parts = std::clamp<int64_t>(16 / g.groups, 1, g.n);  // by the geometry alone: it orders the sum
  float* partial = parts == 1 ? dw : scratch(Scratch::Partial, parts * size);
  const int64_t max_taps = dim.og == 1 ? kDepthTaps : kTileTaps;
  const int64_t tap_tiles = (dim.taps + max_taps - 1) / max_taps, out_tiles = (dim.og + kTileOut - 1) / kTileOut;
  const int64_t work = dim.og * dim.taps * dim.out * g.n / parts;
  parallel_for(parts * g.groups, fma_grain(2 * work), [&](int64_t begin, int64_t end) {
    float* planes = scratch(Scratch::Planes, p.size(dim.cg));
    float* sums = scratch(Scratch::Col, dim.og * dim.taps * kLanes);
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::PackA, 2 * dim.taps));
    p.offsets(dim.cg, off);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t part = t / g.groups, group = t % g.groups;
      std::memset(sums, 0, dim.og * dim.taps * kLanes * sizeof(float));
      for (int64_t image = g.n * part / parts; image < g.n * (part + 1) / parts; ++image) {
        p.fill(x + (image * g.c + group * dim.cg) * dim.in, dim.cg, planes);
        const float* dyg = dy + (image * g.o + group * dim.og) * dim.out;
        for (int64_t a = 0; a < out_tiles; ++a) {
          const int64_t o = dim.og * a / out_tiles, no = dim.og * (a + 1) / out_tiles - o;
          for (int64_t b = 0; b < tap_tiles; ++b) {
            const int64_t k = dim.taps * b / tap_tiles, nk = dim.taps * (b + 1) / tap_tiles - k;
            const WeightTileFn fn = dim.og == 1 ? kDepthTiles[nk - 1] : kWeightTiles[(no - 1) * kTileTaps + nk - 1];
            fn(p, planes, off + k, dyg + o * dim.out, dim.out, sums + (o * dim.taps + k) * kLanes, dim.taps * kLanes);
          }
        }
      }
      float* out = partial + part * size + group * dim.og * dim.taps;
      for (int64_t i = 0; i < dim.og * dim.taps; ++i)
        out[i] = hn::GetLane(hn::SumOfLanes(DF(), hn::Load(DF(), sums + i * kLanes)));
    }
  });
  if (parts > 1) conv2d_sum_parts(partial, parts, size, dw);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(fwd_rows);
HWY_EXPORT(bwd_data_rows);
HWY_EXPORT(bwd_weight_rows);
}  // namespace

void conv2d_fwd_rows(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  HWY_DYNAMIC_DISPATCH(fwd_rows)(g, x, wt, y, e);
}
void conv2d_bwd_data_rows(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  HWY_DYNAMIC_DISPATCH(bwd_data_rows)(g, dy, wt, dx);
}
void conv2d_bwd_weight_rows(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(bwd_weight_rows)(g, x, dy, dw);
}

}  // namespace mge::simd
#endif
