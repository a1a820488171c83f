// The weight gradient of a first layer: an image of few channels as it lies, in planes, and a channels-last gradient.
// Lanes run along the output channels, pixels go by one after the other: a product of matrices whose rows need not be
// gathered, because in padded planes (conv2d_raw_planes-inl.h) each tap is an address.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_few.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/conv2d_raw_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// kTaps * kVecs sums, kVecs vectors of the gradient and a broadcast fill the registers.
constexpr int kFewTaps = 6;
#if MGE_REGISTERS_32
constexpr int kFewVecs = 4;
#else
constexpr int kFewVecs = 2;
#endif

// sums[T][NV vectors] (row distance g.o) += the products of T taps with NV vectors of output channels, over the output
// rows [oy0, oy1). dy: the first of these channels in the image's first pixel.
template <int T, int NV>
void few_tile(const Planes& p, const float* planes, const int64_t* off, int64_t oy0, int64_t oy1,
              const float* HWY_RESTRICT dy, float* HWY_RESTRICT sums) {
  const DF d;
  const int64_t oc = p.g.o, ow = p.g.ow;
  const float* HWY_RESTRICT src[T];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) src[t] = planes + off[t];
  VF acc[T][NV];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[t][v] = hn::Zero(d);
  for (int64_t oy = oy0; oy < oy1; ++oy) {
    const int64_t at = p.at(oy);
    const float* HWY_RESTRICT row = dy + oy * ow * oc;
    for (int64_t ox = 0; ox < ow; ++ox) {
      VF g[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) g[v] = in_register(hn::LoadU(d, row + ox * oc + v * kLanes));
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const VF x = hn::Set(d, src[t][at + ox]);
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) acc[t][v] = hn::MulAdd(x, g[v], acc[t][v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      float* to = sums + t * oc + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), acc[t][v]), d, to);
    }
}

using FewTileFn = void (*)(const Planes&, const float*, const int64_t*, int64_t, int64_t, const float*, float*);
template <int... I>
constexpr std::array<FewTileFn, kFewTaps * kFewVecs> make_few_tiles(std::integer_sequence<int, I...>) {
  return {{few_tile<I / kFewVecs + 1, I % kFewVecs + 1>...}};
}
inline constexpr auto kFewTiles = make_few_tiles(std::make_integer_sequence<int, kFewTaps * kFewVecs>());

// Threads share the tiles of the gradient, not its sums: their order is the same for any number of threads.
void bwd_weight_few(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const ConvDims dim(g);
  const Planes p(g, 0, g.oh);
  float* sums = scratch(Scratch::Partial, dim.taps * g.o);
  std::memset(sums, 0, static_cast<size_t>(dim.taps * g.o) * sizeof(float));
  const int64_t vecs = g.o / kLanes, out_tiles = (vecs + kFewVecs - 1) / kFewVecs,
                tap_tiles = (dim.taps + kFewTaps - 1) / kFewTaps;
  // Rows of the gradient that stay in a second cache of any size while all tiles go over them: they cut the sum.
  const int64_t rows = std::max<int64_t>(1, 32'768 / (g.ow * g.o));
  const int64_t work = g.n * dim.out * g.o * dim.taps / (out_tiles * tap_tiles);
  // One range for each thread: every range pads every image.
  const int64_t tiles = out_tiles * tap_tiles, each = (tiles + num_threads() - 1) / num_threads();
  parallel_for(tiles, std::max(each, fma_grain(work)), [&](int64_t begin, int64_t end) {
    float* planes = scratch(Scratch::Planes, p.size(g.c));
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::PackA, 2 * dim.taps));
    p.offsets(g.c, off);
    for (int64_t image = 0; image < g.n; ++image) {
      p.fill(x + image * g.c * dim.in, g.c, planes);
      for (int64_t oy = 0; oy < g.oh; oy += rows)
        for (int64_t i = begin; i < end; ++i) {
          const int64_t a = i / tap_tiles, b = i % tap_tiles;
          const int64_t v = vecs * a / out_tiles, nv = vecs * (a + 1) / out_tiles - v;
          const int64_t k = dim.taps * b / tap_tiles, nk = dim.taps * (b + 1) / tap_tiles - k;
          kFewTiles[(nk - 1) * kFewVecs + nv - 1](p, planes, off + k, oy, std::min(g.oh, oy + rows),
                                                  dy + image * dim.out * g.o + v * kLanes, sums + k * g.o + v * kLanes);
        }
    }
  });
  transpose(sums, g.o, dim.taps, g.o, dw, dim.taps);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(bwd_weight_few);
}

void few_channels_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(bwd_weight_few)(g, x, dy, dw);
}

}  // namespace mge::simd
#endif
