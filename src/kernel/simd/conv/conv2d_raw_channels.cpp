// Convolution with SIMD lanes along the output channels of a group (up to 16 at a time), the input broadcast from
// padded planes. For layers with about 16 output channels on small images: no im2col, and no lane is lost to the width
// of the image.
#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_raw_channels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/conv2d_raw_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

#if MGE_REGISTERS_32
constexpr int kMaxCols = 14;     // two rows of them: 28 accumulators of 32 registers
constexpr int kWeightTaps = 25;  // accumulators of the weight kernel
#else
constexpr int kMaxCols = 6;
constexpr int kWeightTaps = 12;
#endif

// Two output rows of COLS pixels, one vector of channels: out[row][col][lane] = sum over taps w[tap][lane] *
// planes[...].
template <int COLS>
void channel_tile(int64_t taps, const float* HWY_RESTRICT w, const float* HWY_RESTRICT row0,
                  const float* HWY_RESTRICT row1, const int64_t* HWY_RESTRICT off, float* HWY_RESTRICT out0,
                  float* HWY_RESTRICT out1) {
  const DF d;
  VF acc0[COLS], acc1[COLS];
#pragma GCC unroll 16
  for (int i = 0; i < COLS; ++i) acc0[i] = acc1[i] = hn::Zero(d);
  for (int64_t k = 0; k < taps; ++k, w += kLanes) {
    const VF wk = hn::Load(d, w);
    const float* HWY_RESTRICT x0 = row0 + off[k];
    const float* HWY_RESTRICT x1 = row1 + off[k];
#pragma GCC unroll 16
    for (int i = 0; i < COLS; ++i) acc0[i] = hn::MulAdd(hn::Set(d, x0[i]), wk, acc0[i]);
#pragma GCC unroll 16
    for (int i = 0; i < COLS; ++i) acc1[i] = hn::MulAdd(hn::Set(d, x1[i]), wk, acc1[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < COLS; ++i) {
    hn::Store(acc0[i], d, out0 + i * kLanes);
    hn::Store(acc1[i], d, out1 + i * kLanes);
  }
}

using ChannelTileFn = void (*)(int64_t, const float*, const float*, const float*, const int64_t*, float*, float*);
template <int... I>
constexpr std::array<ChannelTileFn, kMaxCols> make_channel_tiles(std::integer_sequence<int, I...>) {
  return {{channel_tile<I + 1>...}};
}
inline constexpr auto kChannelTiles = make_channel_tiles(std::make_integer_sequence<int, kMaxCols>());

void fwd_channels(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  const ConvDims dim(g);
  const int64_t blocks = (dim.og + kLanes - 1) / kLanes;
  float* weights = scratch(Scratch::Weight, g.groups * blocks * dim.taps * kLanes);
  for (int64_t b = 0; b < g.groups * blocks; ++b) {
    const int64_t o = b % blocks * kLanes, no = std::min<int64_t>(kLanes, dim.og - o);
    pack_transposed(wt + (b / blocks * dim.og + o) * dim.taps, dim.taps, no, dim.taps, weights + b * dim.taps * kLanes,
                    kLanes);
  }
  const int64_t row_floats = dim.cg * g.sh * (g.ow * g.sw + g.kw);
  const int64_t floats = machine().l2 / 16 / int64_t{sizeof(float)};
  const int64_t rows = std::clamp<int64_t>(floats / row_floats, std::min<int64_t>(8, g.oh), g.oh),
                pieces = (g.oh + rows - 1) / rows;
  const int64_t col_tiles = (g.ow + kMaxCols - 1) / kMaxCols;
  // A small batch is cut by channel blocks too; each cut pads the image again.
  const int64_t images = g.n * g.groups * pieces,
                cuts = std::clamp<int64_t>(std::max(8, 2 * num_threads()) / images, 1, blocks);
  const int64_t work = dim.og * dim.taps * rows * g.ow / cuts;
  parallel_for(images * cuts, fma_grain(2 * work), [&](int64_t begin, int64_t end) {
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::Col, 2 * dim.taps));
    float* tmp = scratch(Scratch::Out, rows * g.ow * kLanes);
    int64_t listed = -1;
    for (int64_t job = begin; job < end; ++job) {
      const int64_t t = job / cuts, b0 = blocks * (job % cuts) / cuts, b1 = blocks * (job % cuts + 1) / cuts;
      const int64_t image = t / pieces / g.groups, group = t / pieces % g.groups;
      const int64_t oy0 = t % pieces * rows, oy1 = std::min(g.oh, oy0 + rows), pixels = (oy1 - oy0) * g.ow;
      if (pixels <= 0) continue;
      const Planes p(g, oy0, oy1);
      float* planes = scratch(Scratch::Planes, p.size(dim.cg));
      p.fill(x + (image * g.c + group * dim.cg) * dim.in, dim.cg, planes);
      if (listed != p.rows) p.offsets(dim.cg, off), listed = p.rows;
      for (int64_t b = b0; b < b1; ++b) {
        const float* w = weights + (group * blocks + b) * dim.taps * kLanes;
        for (int64_t oy = oy0; oy < oy1; oy += 2) {
          const int64_t next = std::min(oy + 1, oy1 - 1);  // an odd last row is done twice
          for (int64_t j = 0; j < col_tiles; ++j) {
            const int64_t ox = g.ow * j / col_tiles, cols = g.ow * (j + 1) / col_tiles - ox;
            kChannelTiles[cols - 1](dim.taps, w, planes + p.at(oy) + ox, planes + p.at(next) + ox, off,
                                    tmp + ((oy - oy0) * g.ow + ox) * kLanes, tmp + ((next - oy0) * g.ow + ox) * kLanes);
          }
        }
        const int64_t o = b * kLanes, no = std::min<int64_t>(kLanes, dim.og - o);
        transpose(tmp, kLanes, pixels, no, y + (image * g.o + group * dim.og + o) * dim.out + oy0 * g.ow, dim.out);
      }
      if (e)
        for (int64_t o = group * dim.og + b0 * kLanes; o < group * dim.og + std::min(dim.og, b1 * kLanes); ++o)
          apply_epilogue(*e, o, (image * g.o + o) * dim.out + oy0 * g.ow, pixels, y);
    }
  });
}

// sums[row][tap][lane] += over pixels dy[pixel][lane] * x[row's address + pixel + tap]: R rows of S taps each.
template <int S, int R>
void channel_weight_tile(const Planes& p, const float* planes, const int64_t* off, const float* HWY_RESTRICT dy,
                         float* HWY_RESTRICT sums) {
  const DF d;
  VF acc[R][S];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
    for (int s = 0; s < S; ++s) acc[r][s] = hn::Load(d, sums + (r * S + s) * kLanes);
  for (int64_t oy = 0; oy < p.g.oh; ++oy) {
    const float* src[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) src[r] = planes + oy * p.g.sh * p.pitch + off[r * S];
    for (int64_t ox = 0; ox < p.g.ow; ++ox, dy += kLanes) {
      const VF g = hn::Load(d, dy);
      const int64_t at = opaque(ox);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s) acc[r][s] = hn::MulAdd(hn::Set(d, src[r][at + s]), g, acc[r][s]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
    for (int s = 0; s < S; ++s) hn::Store(acc[r][s], d, sums + (r * S + s) * kLanes);
}

using ChannelWeightFn = void (*)(const Planes&, const float*, const int64_t*, const float*, float*);
template <int S, int... I>
constexpr std::array<ChannelWeightFn, sizeof...(I)> make_channel_weights(std::integer_sequence<int, I...>) {
  return {{channel_weight_tile<S, I + 1>...}};
}
inline constexpr auto kWeight3 = make_channel_weights<3>(std::make_integer_sequence<int, kWeightTaps / 3>());
inline constexpr auto kWeight5 = make_channel_weights<5>(std::make_integer_sequence<int, kWeightTaps / 5>());

void bwd_weight_channels(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const ConvDims dim(g);
  const Planes p(g, 0, g.oh);
  const int64_t size = g.o * dim.taps, blocks = (dim.og + kLanes - 1) / kLanes;
  const int64_t parts = std::clamp<int64_t>(16 / g.groups, 1, g.n);  // by the geometry alone: it orders the sum
  float* partial = parts == 1 ? dw : scratch(Scratch::Partial, parts * size);
  const int64_t max_rows = kWeightTaps / g.kw, tap_rows = dim.cg * g.kh, tiles = (tap_rows + max_rows - 1) / max_rows;
  parallel_for(parts * g.groups, 1, [&](int64_t begin, int64_t end) {
    float* planes = scratch(Scratch::Planes, p.size(dim.cg));
    float* sums = scratch(Scratch::Out, blocks * dim.taps * kLanes);
    float* lanes_of_dy = scratch(Scratch::PackB, dim.out * kLanes);
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::PackA, 2 * dim.taps));
    p.offsets(dim.cg, off);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t part = t / g.groups, group = t % g.groups;
      std::memset(sums, 0, blocks * dim.taps * kLanes * sizeof(float));
      for (int64_t image = g.n * part / parts; image < g.n * (part + 1) / parts; ++image) {
        p.fill(x + (image * g.c + group * dim.cg) * dim.in, dim.cg, planes);
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t o = b * kLanes, no = std::min<int64_t>(kLanes, dim.og - o);
          pack_transposed(dy + (image * g.o + group * dim.og + o) * dim.out, dim.out, no, dim.out, lanes_of_dy, kLanes);
          for (int64_t i = 0; i < tiles; ++i) {
            const int64_t r = tap_rows * i / tiles, nr = tap_rows * (i + 1) / tiles - r;
            (g.kw == 3 ? kWeight3[nr - 1] : kWeight5[nr - 1])(p, planes, off + r * g.kw, lanes_of_dy,
                                                              sums + (b * dim.taps + r * g.kw) * kLanes);
          }
        }
      }
      float* out = partial + part * size + group * dim.og * dim.taps;
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t o = b * kLanes, no = std::min<int64_t>(kLanes, dim.og - o);
        transpose(sums + b * dim.taps * kLanes, kLanes, dim.taps, no, out + o * dim.taps, dim.taps);
      }
    }
  });
  if (parts > 1) conv2d_sum_parts(partial, parts, size, dw);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(fwd_channels);
HWY_EXPORT(bwd_weight_channels);
}  // namespace

void conv2d_fwd_channels(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  HWY_DYNAMIC_DISPATCH(fwd_channels)(g, x, wt, y, e);
}
void conv2d_bwd_weight_channels(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(bwd_weight_channels)(g, x, dy, dw);
}

}  // namespace mge::simd
#endif
