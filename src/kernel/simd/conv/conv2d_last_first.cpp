// Forward convolution of an image of few channels, a first layer: the image lies in planes, results channels-last.
// Lanes run along the output channels; a register tile takes neighbouring pixels of a row, which in padded planes
// (conv2d_raw_planes-inl.h) lie side by side at an address for each tap. The weight is in panels, [panel][channel,
// tap][kNR].
//
// A sum is one chain of fused multiply-adds over channels and taps: bits depend neither on threads nor on the cut.
#include <algorithm>
#include <array>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_first.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/conv2d_raw_planes-inl.h"
#include "kernel/simd/conv/line_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// MR pixels from `pixels` on, NV vectors of output channels; kHalf as in line_tile.
template <int MR, int NV, bool kHalf = false>
void first_tile(int64_t taps, const float* HWY_RESTRICT pixels, const int64_t* HWY_RESTRICT off,
                const float* HWY_RESTRICT b, const LineTileTo& to) {
  RowFetcher<MR, NV> fetch(to);
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
  for (int64_t k = 0; k < taps; ++k, b += kNR) {
    fetch.step();
    const float* HWY_RESTRICT a = pixels + off[k];
    VF bv[NV];
    [[maybe_unused]] VH bh;
#pragma GCC unroll 2
    for (int v = 0; v < kWhole; ++v) bv[v] = in_register(hn::Load(d, b + v * kLanes));
    if constexpr (kHalf) bh = hn::Load(dh, b + kWhole * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const VF ai = hn::Set(d, a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kWhole; ++v) acc[i][v] = hn::MulAdd(ai, bv[v], acc[i][v]);
      if constexpr (kHalf) half[i] = hn::MulAdd(hn::LowerHalf(dh, ai), bh, half[i]);
    }
  }
  if constexpr (kHalf)
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) acc[i][kWhole] = hn::ZeroExtendVector(d, half[i]);
  finish_tile(to, acc);
}

using FirstTileFn = void (*)(int64_t, const float*, const int64_t*, const float*, const LineTileTo&);
// Tiles of a row overlap where they do not fit it, so that three sizes are enough.
constexpr int kMiddle = kMR / 2 + 1;
struct FirstTile {
  int64_t pixels;
  FirstTileFn whole[2], half[2];  // by vectors
};
inline constexpr FirstTile kFirstTiles[] = {
    {kMR, {first_tile<kMR, 1>, first_tile<kMR, 2>}, {first_tile<kMR, 1, kHalfTiles>, first_tile<kMR, 2, kHalfTiles>}},
    {kMiddle, {first_tile<kMiddle, 1>, first_tile<kMiddle, 2>}, {first_tile<kMiddle, 1>, first_tile<kMiddle, 2>}},
    {1, {first_tile<1, 1>, first_tile<1, 2>}, {first_tile<1, 1>, first_tile<1, 2>}}};

// The size with the least work for a row of so many pixels.
inline const FirstTile& first_tile_for(int64_t row) {
  const FirstTile* best = &kFirstTiles[2];
  for (const FirstTile* t : {&kFirstTiles[1], &kFirstTiles[0]}) {
    auto work = [&](const FirstTile& f) { return (row + f.pixels - 1) / f.pixels * (f.pixels + 2); };
    if (t->pixels <= row && work(*t) <= work(*best)) best = t;
  }
  return *best;
}

// Output rows [oy0, oy1) of one image.
void first_rows(const ConvGeom& g, const float* x, const float* panels, float* y, const Epilogue* e, int64_t image,
                int64_t oy0, int64_t oy1) {
  const int64_t taps = g.c * g.kh * g.kw;
  const Planes p(g, oy0, oy1);
  float* planes = scratch(Scratch::Planes, p.size(g.c));
  auto* off = reinterpret_cast<int64_t*>(scratch(Scratch::PackA, 2 * taps));
  p.offsets(g.c, off);
  p.fill(x + image * g.c * g.h * g.w, g.c, planes);
  const FirstTile& tile = first_tile_for(g.ow);
  for (int64_t oy = oy0; oy < oy1; ++oy) {
    const int64_t row = (image * g.oh + oy) * g.ow;
    for (int64_t j = 0; j < g.o; j += kNR) {
      const int64_t cols = std::min<int64_t>(kNR, g.o - j), vecs = (cols + kLanes - 1) / kLanes;
      const int tail = static_cast<int>(cols - (vecs - 1) * kLanes);
      const FirstTileFn run = (tail <= kLanes / 2 ? tile.half : tile.whole)[vecs - 1];
      for (int64_t at = 0; at < g.ow; at += tile.pixels) {
        const int64_t ox = std::min(at, g.ow - tile.pixels), to = (row + ox) * g.o + j;
        run(taps, planes + p.at(oy) + ox, off, panels + j * taps,
            {y + to, g.o, tail, {}, e, j, e && e->add ? e->add + to : nullptr});
      }
    }
    if (e) e->finish(y + row * g.o, g.ow * g.o);
  }
}

void first_width(int64_t* cols) { *cols = kNR; }

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(first_rows);
HWY_EXPORT(first_width);
}  // namespace

int64_t first_floats(const ConvGeom& g) { return (g.o + 31) / 32 * 32 * g.c * g.kh * g.kw; }

void first_last_weights(const ConvGeom& g, const float* wt, float* panels) {
  const int64_t taps = g.kh * g.kw;
  int64_t nr;
  HWY_DYNAMIC_DISPATCH(first_width)(&nr);
  pack_weight({g.o, g.c, taps, nr, g.c * taps * nr, taps * nr, nr}, wt, panels);
}

void first_last_fwd_panels(const ConvGeom& g, const float* x, const float* panels, float* y, const Epilogue* e) {
  // A band of rows stays in the first caches; its padding is filled again by the next.
  const int64_t band = std::clamp<int64_t>(g.n * g.oh / (3 * num_threads()), 2, 8), bands = (g.oh + band - 1) / band;
  const int64_t work = band * g.ow * g.o * g.c * g.kh * g.kw;
  parallel_for(g.n * bands, fma_grain(work), [&](int64_t b, int64_t end) {
    for (; b < end; ++b) HWY_DYNAMIC_DISPATCH(first_rows)
    (g, x, panels, y, e, b / bands, b % bands * band, std::min(g.oh, (b % bands + 1) * band));
  });
}

void first_last_rows(const ConvGeom& g, const float* x, const float* panels, float* y, const Epilogue* e, int64_t image,
                     int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(first_rows)(g, x, panels, y, e, image, first, last);
}

void first_last_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  float* panels = scratch(Scratch::Weight, first_floats(g));
  first_last_weights(g, wt, panels);
  first_last_fwd_panels(g, x, panels, y, e);
}

}  // namespace mge::simd
#endif
