// Depthwise convolution with lanes along the channels: a vector of 16 channels walks along a row, its weights beside
// it.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_last_depthwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/epilogue-inl.h"

#ifndef MGE_DEPTHWISE_ONCE
#define MGE_DEPTHWISE_ONCE
namespace mge::simd {

alignas(64) inline constexpr float kZeroLanes[16] = {};  // what a tap outside the image reads

// Where one row of outputs reads, for all taps: output i of `count` takes, from row r and tap s, the pixel at
// from[r][s] + i * step; a null row and pixels outside [0, size) are zeros. Outputs are `apart` pixels from each other.
struct DepthRow {
  static constexpr int64_t kMaxTaps = 64;
  int64_t taps = 0, count = 0, step = 1, apart = 1, size = 0, channels = 0;
  const float* next_row = nullptr;  // of 3x3 taps: the image row below theirs, for a second row of outputs
  const float* row[kMaxTaps];       // start of the image row a tap reads; null: outside
  int64_t first[kMaxTaps];          // the pixel of that row which output 0 takes
  const float* weight[kMaxTaps];    // [channels]
  void add(const float* r, int64_t f, const float* w) { row[taps] = r, first[taps] = f, weight[taps] = w, ++taps; }
};

inline int64_t depth_grain(const ConvGeom& g, int64_t row_pixels) {
  return fma_grain(2 * g.kh * g.kw * g.c * row_pixels);
}

}  // namespace mge::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Outputs [i, i + N) of one vector of channels at c. All taps lie inside their row; at an edge N is 1.
template <int N, bool kEdge>
HWY_INLINE void depth_tile(const DepthRow& p, int64_t i, int64_t c, MF m, int lanes, float* HWY_RESTRICT y,
                           const Epilogue* done, int64_t pixel) {
  const DF d;
  VF acc[N];
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) acc[j] = hn::Zero(d);
  const bool whole = lanes == kLanes;
  for (int64_t t = 0; t < p.taps; ++t) {
    const VF w = whole ? hn::LoadU(d, p.weight[t] + c) : load_n(m, p.weight[t] + c, lanes);
    const int64_t at = p.first[t] + i * p.step;
    const bool outside = !p.row[t] || (kEdge && (at < 0 || at >= p.size));
    const float* HWY_RESTRICT src = outside ? kZeroLanes : p.row[t] + at * p.channels + c;
    const int64_t next = outside ? 0 : p.step * p.channels;
    if (whole) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[j] = hn::MulAdd(w, hn::LoadU(d, src + j * next), acc[j]);
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[j] = hn::MulAdd(w, load_n(m, src + j * next, lanes), acc[j]);
    }
  }
  if (done) {
    const float* add = done->add ? done->add + (pixel + i) * p.channels + c : nullptr;
    ChannelSteps(*done, c, m, lanes).all(acc, add, [&](int j) HWY_ATTR {
      return whole ? hn::LoadU(d, add + j * p.channels) : load_n(m, add + j * p.channels, lanes);
    });
  }
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
    float* HWY_RESTRICT to = y + (i + j) * p.apart * p.channels + c;
    if (whole)
      hn::StoreU(acc[j], d, to);
    else
      store_n(acc[j], m, to, lanes);
  }
}

// The first pixel of a tile lies outside its row, or the last one.
enum DepthEdge { kLeftOut = 1, kRightOut = 2 };

// Outputs [i, i + N) of R rows of a 3x3 filter, all channels, of which there is a vector at least: weights stay in
// registers, and a pixel is loaded once for all taps that see it. Two rows together read four of the image, not six:
// rows are larger than the first cache. Taps of an output come in the order of depth_tile. Where channels are no whole
// vectors the last one reaches back and writes some values a second time.
template <int R, int N, int S>
void depth_tile3(const DepthRow& p, int64_t i, int edge, float* HWY_RESTRICT y, const Epilogue* done, int64_t pixel) {
  constexpr int kPixels = (N - 1) * S + 3, kLines = (R - 1) * S + 3;
  const DF d;
  const int64_t channels = p.channels, at = p.first[0] + i * S;
  const MF all = hn::FirstN(d, kLanes);
  for (int64_t at_c = 0; at_c < channels; at_c += kLanes) {
    const int64_t c = std::min(at_c, channels - kLanes);
    VF acc[R][N], w[3][3];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[r][j] = hn::Zero(d);
#pragma GCC unroll 4
    for (int l = 0; l < kLines; ++l) {
#pragma GCC unroll 3
      for (int s = 0; s < 3 && l < 3; ++s) w[l][s] = in_register(hn::LoadU(d, p.weight[3 * l + s] + c));
      // Of a row outside the image every pixel is one of zeros.
      const float* image = l < 3 ? p.row[3 * l] : p.next_row;
      const float* HWY_RESTRICT row = image ? image + at * channels + c : kZeroLanes;
      const int64_t next = image ? channels : 0;
#pragma GCC unroll 17
      for (int q = 0; q < kPixels; ++q, row += next) {
        const float* from = row;
        if (q == 0) from = edge & kLeftOut ? kZeroLanes : row;
        if (q == kPixels - 1) from = edge & kRightOut ? kZeroLanes : row;
        // Else each tap would load it anew, and loads would take as long as the sums.
        const VF v = in_register(hn::LoadU(d, from));
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
          for (int s = 0; s < 3; ++s)
            if (const int k = l - r * S, j = (q - s) / S; k >= 0 && k < 3 && q >= s && (q - s) % S == 0 && j < N)
              acc[r][j] = hn::MulAdd(w[k][s], v, acc[r][j]);
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const int64_t first = (r * p.count + i) * channels + c;
      if (done) {
        const float* add = done->add ? done->add + pixel * channels + first : nullptr;
        ChannelSteps(*done, c, all, kLanes).all(acc[r], add, [&](int j) HWY_ATTR {
          return hn::LoadU(d, add + j * channels);
        });
      }
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) hn::StoreU(acc[r][j], d, y + first + j * channels);
    }
  }
}

// R rows of a tile or more, whose first pixel and last one may lie outside: tiles of N, the last over the one before it
// where they do not fit.
template <int R, int N, int S>
void depth_rows3(const DepthRow& p, float* y, const Epilogue* done, int64_t pixel) {
  const int64_t last = p.first[0] + (p.count - 1) * S + 2;  // pixel
  for (int64_t at = 0; at < p.count; at += N) {
    const int64_t i = std::min(at, p.count - N);
    const int left = i == 0 && p.first[0] < 0 ? kLeftOut : 0,
              right = i + N == p.count && last == p.size ? kRightOut : 0;
    depth_tile3<R, N, S>(p, i, left | right, y, done, pixel);
  }
}

using DepthRowsFn = void (*)(const DepthRow&, float*, const Epilogue*, int64_t);
// Tiles for rows like this one, one row and, if there is such a tile, two together; null: other rows.
struct DepthTiles {
  DepthRowsFn one = nullptr, two = nullptr;
};
template <int S>
DepthTiles depth_tiles(const DepthRow& p) {
  if (p.first[0] < -1 || p.first[0] + (p.count - 1) * S + 2 > p.size || p.count < 4) return {};
#if MGE_REGISTERS_32
  auto work = [&](int64_t n) { return (p.count + n - 1) / n * (n + 1); };
  constexpr int R = S == 1 ? 2 : 1;
  if (p.count >= 7 && (p.count == 7 || work(7) <= work(8))) return {depth_rows3<1, 7, S>, depth_rows3<R, 7, S>};
  if (p.count >= 8) return {depth_rows3<1, 8, S>, depth_rows3<R, 8, S>};
#endif
  return {depth_rows3<1, 4, S>};
}

// A row of outputs, every channel. y points to output 0, which is that pixel of all outputs.
void depth_row(const DepthRow& p, float* HWY_RESTRICT y, const Epilogue* done = nullptr, int64_t pixel = 0) {
  int64_t lo = 0, hi = p.count;  // outputs whose taps all lie inside
  for (int64_t t = 0; t < p.taps; ++t) {
    if (!p.row[t]) continue;
    lo = std::max(lo, p.first[t] >= 0 ? 0 : (-p.first[t] + p.step - 1) / p.step);
    hi = std::min(hi, p.first[t] >= p.size ? 0 : (p.size - 1 - p.first[t]) / p.step + 1);
  }
  lo = std::min(lo, p.count);
  hi = std::max(lo, hi);
  // Outputs in groups, all channels of a group: memory is read and written in the order it lies in.
  auto group = [&](int64_t i, auto tile) HWY_ATTR {
    for (int64_t c = 0; c < p.channels; c += kLanes) {
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, p.channels - c));
      tile(i, c, hn::FirstN(DF(), static_cast<size_t>(lanes)), lanes);
    }
  };
  int64_t i = 0;
  auto edge = [&](int64_t at, int64_t c, MF m, int lanes)
                  HWY_ATTR { depth_tile<1, true>(p, at, c, m, lanes, y, done, pixel); };
  auto inside = [&]<int N>(std::integral_constant<int, N>) HWY_ATTR {
    group(i, [&](int64_t at, int64_t c, MF m, int lanes)
                 HWY_ATTR { depth_tile<N, false>(p, at, c, m, lanes, y, done, pixel); });
    i += N;
  };
  for (; i < lo; ++i) group(i, edge);
  while (i + 8 <= hi) inside(std::integral_constant<int, 8>());
  if (i + 4 <= hi) inside(std::integral_constant<int, 4>());
  if (i + 2 <= hi) inside(std::integral_constant<int, 2>());
  for (; i < p.count; ++i) group(i, edge);
}

// [tap][channel] of a weight [channel][tap].
void depth_taps(const ConvGeom& g, const float* wt, float* to) {
  const int64_t taps = g.kh * g.kw;
  transpose(wt, taps, g.c, taps, to, g.c);
}

// Rows [b, e) of the outputs of all images.
void depth_rows(const ConvGeom& g, const float* x, const float* w, float* y, const Epilogue* done, int64_t b,
                int64_t e) {
  // 3x3 taps side by side, steps of one or two, a vector of channels at least.
  const bool square3 = g.kh == 3 && g.kw == 3 && g.dw == 1 && g.c >= kLanes && g.sw <= 2;
  for (int64_t rows; b < e; b += rows) {
    const float* image = x + b / g.oh * g.h * g.w * g.c;
    const int64_t oy = b % g.oh;
    auto line = [&](int64_t iy) { return iy < 0 || iy >= g.h ? nullptr : image + iy * g.w * g.c; };
    DepthRow p{.count = g.ow, .step = g.sw, .size = g.w, .channels = g.c};
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s)
        p.add(line(oy * g.sh - g.ph + r * g.dh), s * g.dw - g.pw, w + (r * g.kw + s) * g.c);
    const DepthTiles tiles = !square3 ? DepthTiles{} : g.sw == 1 ? depth_tiles<1>(p) : depth_tiles<2>(p);
    const bool two = tiles.two != tiles.one && tiles.two && g.sh * g.dh == 1 && b + 1 < e && oy + 1 < g.oh;
    rows = two ? 2 : 1;
    if (two) p.next_row = line(oy - g.ph + 3);
    float* to = y + b * g.ow * g.c;
    if (tiles.one)
      (two ? tiles.two : tiles.one)(p, to, done, b * g.ow);
    else
      depth_row(p, to, done, b * g.ow);
    if (done) done->finish(to, rows * g.ow * g.c);
  }
}

// Pixels of dx whose distance is the stride take the same taps: one DepthRow for each of those phases.
void depth_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  float* w = scratch(Scratch::Weight, depthwise_floats(g));
  depth_taps(g, wt, w);
  parallel_for(g.n * g.h, depth_grain(g, g.w), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const float* image = dy + b / g.h * g.oh * g.ow * g.c;
      const int64_t iy = b % g.h;
      for (int64_t phase = 0; phase < std::min(g.sw, g.w); ++phase) {
        DepthRow p{.count = (g.w - phase + g.sw - 1) / g.sw, .step = 1, .apart = g.sw, .size = g.ow, .channels = g.c};
        for (int64_t r = 0; r < g.kh; ++r) {
          const int64_t ty = iy + g.ph - r * g.dh;
          if (ty < 0 || ty % g.sh || ty / g.sh >= g.oh) continue;
          for (int64_t s = 0; s < g.kw; ++s) {
            const int64_t tx = phase + g.pw - s * g.dw;
            if ((tx % g.sw + g.sw) % g.sw) continue;
            p.add(image + ty / g.sh * g.ow * g.c, tx / g.sw, w + (r * g.kw + s) * g.c);
          }
        }
        depth_row(p, dx + (b * g.w + phase) * g.c);
      }
    }
  });
}

// T taps of row r, from tap s on: sums[t][c] += over outputs [lo, hi) of dy * x.
template <int T>
void depth_weight_tile(const float* HWY_RESTRICT x, int64_t x_step, const float* HWY_RESTRICT dy, int64_t c_step,
                       const int64_t* off, int64_t count, MF m, int lanes, float* HWY_RESTRICT sums) {
  const DF d;
  VF acc[T];
#pragma GCC unroll 9
  for (int t = 0; t < T; ++t) acc[t] = hn::Load(d, sums + t * kLanes);
  const float* src[T];
#pragma GCC unroll 9
  for (int t = 0; t < T; ++t) src[t] = x + off[t];
  if (lanes == kLanes) {
    for (int64_t i = 0; i < count; ++i) {
      const VF g = hn::LoadU(d, dy + i * c_step);
#pragma GCC unroll 9
      for (int t = 0; t < T; ++t) acc[t] = hn::MulAdd(g, hn::LoadU(d, src[t] + i * x_step), acc[t]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const VF g = load_n(m, dy + i * c_step, lanes);
#pragma GCC unroll 9
      for (int t = 0; t < T; ++t) acc[t] = hn::MulAdd(g, load_n(m, src[t] + i * x_step, lanes), acc[t]);
    }
  }
#pragma GCC unroll 9
  for (int t = 0; t < T; ++t) hn::Store(acc[t], d, sums + t * kLanes);
}

constexpr int kDepthTile = 9;
using DepthWeightFn = void (*)(const float*, int64_t, const float*, int64_t, const int64_t*, int64_t, MF, int, float*);
template <int... I>
constexpr std::array<DepthWeightFn, kDepthTile> make_depth_weight(std::integer_sequence<int, I...>) {
  return {{depth_weight_tile<I + 1>...}};
}
inline constexpr auto kDepthWeight = make_depth_weight(std::make_integer_sequence<int, kDepthTile>());

// One vector of channels, the outputs of rows [oy0, oy1) of an image, added to sums [taps][kLanes]. Row by row, so that
// each tap adds its terms in the order of the pixels.
void depth_weight_band(const ConvGeom& g, const float* x, const float* dy, int64_t oy0, int64_t oy1, int64_t c,
                       float* sums) {
  const int lanes = static_cast<int>(std::min<int64_t>(kLanes, g.c - c));
  const MF m = hn::FirstN(DF(), static_cast<size_t>(lanes));
  // Outputs for which every tap of a row lies inside; the few others take their taps one by one.
  const int64_t reach = (g.kw - 1) * g.dw;
  const int64_t lo = std::clamp<int64_t>((g.pw + g.sw - 1) / g.sw, 0, g.ow);
  const int64_t inside = g.w - 1 - reach + g.pw;
  const int64_t hi = std::clamp<int64_t>(inside < 0 ? 0 : inside / g.sw + 1, lo, g.ow);
  for (int64_t oy = oy0; oy < oy1; ++oy) {
    const float* gy = dy + oy * g.ow * g.c + c;
    int64_t off[DepthRow::kMaxTaps], tap[DepthRow::kMaxTaps], n = 0;
    for (int64_t r = 0; r < g.kh; ++r) {
      const int64_t iy = oy * g.sh - g.ph + r * g.dh;
      if (iy < 0 || iy >= g.h) continue;
      for (int64_t s = 0; s < g.kw; ++s) off[n] = (iy * g.w + s * g.dw - g.pw) * g.c + c, tap[n++] = r * g.kw + s;
    }
    auto one_by_one = [&](int64_t from, int64_t to) HWY_ATTR {
      for (int64_t i = from; i < to; ++i)
        for (int64_t k = 0; k < n; ++k) {
          const int64_t ix = i * g.sw - g.pw + tap[k] % g.kw * g.dw;
          if (ix < 0 || ix >= g.w) continue;
          kDepthWeight[0](x + i * g.sw * g.c, 0, gy + i * g.c, 0, off + k, 1, m, lanes, sums + tap[k] * kLanes);
        }
    };
    one_by_one(0, lo);
    // Taps of neighbouring rows lie side by side in `sums`, so up to nine are taken at once.
    for (int64_t k = 0; k < n; k += kDepthTile)
      kDepthWeight[std::min<int64_t>(kDepthTile, n - k) - 1](x + lo * g.sw * g.c, g.sw * g.c, gy + lo * g.c, g.c,
                                                             off + k, hi - lo, m, lanes, sums + tap[k] * kLanes);
    one_by_one(hi, g.ow);
  }
}

void depth_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const int64_t taps = g.kh * g.kw, vectors = (g.c + kLanes - 1) / kLanes;
  // The sum is cut by the geometry alone: by images, and a large image into bands.
  const int64_t bands = std::clamp<int64_t>(g.oh * g.ow / 4096, 1, g.oh), parts = g.n * bands;
  const int64_t size = taps * vectors * 16;
  float* partial = scratch(Scratch::Partial, parts * size);
  // Rows that stay in the second cache while the vectors of channels go over them.
  const int64_t floats = machine().l2 / 8 / int64_t{sizeof(float)};
  const int64_t rows = std::clamp<int64_t>(floats / (g.w * g.c * g.sh), 1, g.oh);
  // Few parts are cut by channels as well; those do not meet in any sum.
  const int64_t cuts = std::clamp<int64_t>(2 * num_threads() / parts, 1, vectors);
  const int64_t work = taps * g.c * g.oh * g.ow / bands / cuts;
  parallel_for(parts * cuts, fma_grain(2 * work), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const int64_t part = b / cuts, image = part / bands, band = part % bands;
      const int64_t oy0 = g.oh * band / bands, oy1 = g.oh * (band + 1) / bands;
      const int64_t v0 = vectors * (b % cuts) / cuts, v1 = vectors * (b % cuts + 1) / cuts;
      float* sums = partial + part * size;
      std::memset(sums + v0 * taps * kLanes, 0, static_cast<size_t>((v1 - v0) * taps * kLanes) * sizeof(float));
      for (int64_t oy = oy0; oy < oy1; oy += rows)
        for (int64_t v = v0; v < v1; ++v)
          depth_weight_band(g, x + image * g.h * g.w * g.c, dy + image * g.oh * g.ow * g.c, oy,
                            std::min(oy + rows, oy1), v * kLanes, sums + v * taps * kLanes);
    }
  });
  parallel_for(vectors, value_grain(parts * taps * kLanes), [&](int64_t b, int64_t e) {
    for (int64_t i = 1; i < parts; ++i)
      add_n(partial + i * size + b * taps * kLanes, (e - b) * taps * kLanes, partial + b * taps * kLanes);
  });
  for (int64_t c = 0; c < g.c; ++c)
    for (int64_t t = 0; t < taps; ++t) dw[c * taps + t] = partial[(c / kLanes * taps + t) * kLanes + c % kLanes];
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(depth_rows);
HWY_EXPORT(depth_taps);
HWY_EXPORT(depth_bwd_data);
HWY_EXPORT(depth_bwd_weight);
}  // namespace

int64_t depthwise_floats(const ConvGeom& g) { return g.kh * g.kw * g.c + 16; }

void depthwise_last_weights(const ConvGeom& g, const float* wt, float* by_tap) {
  HWY_DYNAMIC_DISPATCH(depth_taps)(g, wt, by_tap);
}
void depthwise_last_rows(const ConvGeom& g, const float* x, const float* by_tap, float* y, const Epilogue* e,
                         int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(depth_rows)(g, x, by_tap, y, e, first, last);
}
void depthwise_last_fwd_taps(const ConvGeom& g, const float* x, const float* by_tap, float* y, const Epilogue* e) {
  parallel_for(g.n * g.oh, depth_grain(g, g.ow),
               [&](int64_t b, int64_t end) { depthwise_last_rows(g, x, by_tap, y, e, b, end); });
}
void depthwise_last_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  float* by_tap = scratch(Scratch::Weight, depthwise_floats(g));
  depthwise_last_weights(g, wt, by_tap);
  depthwise_last_fwd_taps(g, x, by_tap, y, e);
}
void depthwise_last_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  HWY_DYNAMIC_DISPATCH(depth_bwd_data)(g, dy, wt, dx);
}
void depthwise_last_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(depth_bwd_weight)(g, x, dy, dw);
}

}  // namespace mge::simd
#endif
