#include "kernel/simd/quant/depthwise_last_raw.h"

#include <algorithm>
#include <cstring>

#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/quant/depthwise_last_raw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef MGE_DEPTHWISE_BYTES_ONCE
#define MGE_DEPTHWISE_BYTES_ONCE
namespace mge::simd {

inline constexpr int64_t kWidest = 32;  // channels of the widest vector of words

// Where a row of outputs reads: output i takes, for tap t, the pixel first[t] + i * step of row[t]. A null row and
// pixels outside [0, size) are `outside`, as many zero points as a vector has bytes: what the sums less zero * total
// take from them is 0.
template <class B>
struct ByteTaps {
  int64_t taps = 0, step, size, channels, weight_channels;
  const B* row[kDepthwiseBytesTaps];
  int64_t first[kDepthwiseBytesTaps];
  const int16_t* weight;
  const int32_t* totals;
  int32_t zero;
  B outside[kWidest];

  ByteTaps(const ConvGeom& g, const B* x, int32_t z, const void* w, int64_t oy)
      : step(g.sw), size(g.w), channels(g.c), zero(z) {
    const DepthwiseBytes d(g);
    weight = d.by_tap(w), totals = d.totals(w), weight_channels = d.channels;
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s) {
        const int64_t y = oy * g.sh - g.ph + r * g.dh;
        first[taps] = s * g.dw - g.pw;
        row[taps++] = y >= 0 && y < g.h ? x + y * g.w * g.c : nullptr;
      }
    if (taps % 2) first[taps] = 0, row[taps++] = nullptr;
    std::fill_n(outside, kWidest, static_cast<B>(z));
  }
};

}  // namespace mge::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::CappedTag<int32_t, 16>;
using D16 = hn::RepartitionToNarrow<D32>;
using V32 = hn::Vec<D32>;
using V16 = hn::Vec<D16>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D32())), kChannels = 2 * kLanes;
static_assert(kChannels <= kWidest);

// Sums of kChannels channels. Words of two taps are interleaved within blocks of 128 bits: the first vector has the
// even blocks of channels, the second one the odd blocks.
struct Sums {
  V32 a[2], b[2];  // of the multiply-add, which on ARM has two
  HWY_INLINE void add(const V16 (&x)[2], const V16 (&w)[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) a[i] = hn::ReorderWidenMulAccumulate(D32(), x[i], w[i], a[i], b[i]);
  }
  // In the order of the channels.
  HWY_INLINE void in_order(V32 (&to)[2]) const {
    to[0] = hn::RearrangeToOddPlusEven(a[0], b[0]);
    to[1] = hn::RearrangeToOddPlusEven(a[1], b[1]);
    if constexpr (kLanes > 4) {
      const V32 even = to[0], odd = to[1];
      to[0] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
      to[1] = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
    }
    if constexpr (kLanes > 8) {
      const D32 d;
      const V32 low = to[0], high = to[1];
      to[0] = hn::ConcatLowerLower(d, high, low);
      to[1] = hn::ConcatUpperUpper(d, high, low);
    }
  }
};

HWY_INLINE void interleave(V16 x, V16 y, V16 (&to)[2]) {
  to[0] = hn::InterleaveLower(D16(), x, y);
  to[1] = hn::InterleaveUpper(D16(), x, y);
}

// Outputs [i, i + N), `count` channels from c on, kChannels of them unless kFew. At an edge N is 1.
template <int N, bool kEdge, bool kFew, class B>
HWY_INLINE void tile(const ByteTaps<B>& p, int64_t i, int64_t c, size_t count, int32_t* HWY_RESTRICT sums) {
  const D32 d32;
  const D16 d16;
  const hn::Rebind<B, D16> d8;
  auto words = [&](const B* from) HWY_ATTR {
    if (!kFew) return hn::PromoteTo(d16, hn::LoadU(d8, from));
    HWY_ALIGN B some[kChannels] = {};
    std::memcpy(some, from, count);
    return hn::PromoteTo(d16, hn::Load(d8, some));
  };
  Sums sum[N];
#pragma GCC unroll 4
  for (Sums& s : sum) s.a[0] = s.a[1] = s.b[0] = s.b[1] = hn::Zero(d32);
  for (int64_t t = 0; t < p.taps; t += 2) {
    const int16_t* weight = p.weight + t * p.weight_channels + c;
    V16 w[2];
    interleave(hn::LoadU(d16, weight), hn::LoadU(d16, weight + p.weight_channels), w);
    const B* from[2];
    int64_t next[2];
    for (int k = 0; k < 2; ++k) {
      const int64_t at = p.first[t + k] + i * p.step;
      const bool outside = !p.row[t + k] || (kEdge && (at < 0 || at >= p.size));
      from[k] = outside ? p.outside : p.row[t + k] + at * p.channels + c;
      next[k] = outside ? 0 : p.step * p.channels;
    }
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      V16 x[2];
      interleave(words(from[0] + j * next[0]), words(from[1] + j * next[1]), x);
      sum[j].add(x, w);
    }
  }
  const V32 zero = hn::Set(d32, p.zero);
  const V32 none[2] = {hn::Mul(zero, hn::LoadU(d32, p.totals + c)),
                       hn::Mul(zero, hn::LoadU(d32, p.totals + c + kLanes))};
#pragma GCC unroll 4
  for (int j = 0; j < N; ++j) {
    V32 to[2];
    sum[j].in_order(to);
    int32_t* out = sums + j * p.channels + c;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const V32 v = hn::Sub(to[h], none[h]);
      if (!kFew) {
        hn::StoreU(v, d32, out + h * kLanes);
      } else if (count > static_cast<size_t>(h * kLanes)) {
        HWY_ALIGN int32_t some[kLanes];
        hn::Store(v, d32, some);
        std::memcpy(out + h * kLanes, some, std::min<size_t>(kLanes, count - static_cast<size_t>(h * kLanes)) * 4);
      }
    }
  }
}

// Every channel. A last part of a vector reaches back and writes some sums a second time.
template <int N, bool kEdge, class B>
void positions(const ByteTaps<B>& p, int64_t i, int32_t* sums) {
  if (p.channels < kChannels) return tile<N, kEdge, true>(p, i, 0, static_cast<size_t>(p.channels), sums);
  for (int64_t c = 0; c < p.channels; c += kChannels)
    tile<N, kEdge, false>(p, i, std::min(c, p.channels - kChannels), kChannels, sums);
}

template <class B>
void row(const ConvGeom& g, const B* x, int32_t zero, const void* weight, int64_t oy, int64_t begin, int64_t end,
         int32_t* sums) {
  const ByteTaps<B> p(g, x, zero, weight, oy);
  int64_t lo = begin, hi = end;  // outputs whose taps all lie inside their rows
  for (int64_t t = 0; t < p.taps; ++t) {
    if (!p.row[t]) continue;
    lo = std::max(lo, p.first[t] >= 0 ? 0 : (-p.first[t] + p.step - 1) / p.step);
    hi = std::min(hi, p.first[t] >= p.size ? 0 : (p.size - 1 - p.first[t]) / p.step + 1);
  }
  lo = std::min(lo, end);
  hi = std::max(lo, hi);
  auto at = [&](int64_t i) { return sums + (i - begin) * p.channels; };
  int64_t i = begin;
  for (; i < lo; ++i) positions<1, true>(p, i, at(i));
  for (; i + 4 <= hi; i += 4) positions<4, false>(p, i, at(i));
  if (i < hi && hi - 4 >= lo) positions<4, false>(p, hi - 4, at(hi - 4)), i = hi;
  for (; i < hi; ++i) positions<1, false>(p, i, at(i));
  for (; i < end; ++i) positions<1, true>(p, i, at(i));
}
void row_i8(const ConvGeom& g, const int8_t* x, int32_t zero, const void* w, int64_t oy, int64_t b, int64_t e,
            int32_t* sums) {
  row(g, x, zero, w, oy, b, e, sums);
}
void row_u8(const ConvGeom& g, const uint8_t* x, int32_t zero, const void* w, int64_t oy, int64_t b, int64_t e,
            int32_t* sums) {
  row(g, x, zero, w, oy, b, e, sums);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {

HWY_EXPORT(row_i8);
HWY_EXPORT(row_u8);

DepthwiseBytes::DepthwiseBytes(const ConvGeom& g)
    : channels((std::max(g.c, kWidest) + 15) / 16 * 16), taps((g.kh * g.kw + 1) / 2 * 2) {}

void depthwise_bytes_weights(const ConvGeom& g, const int16_t* w, void* to) {
  const DepthwiseBytes d(g);
  std::memset(to, 0, static_cast<size_t>(d.bytes()));
  const int64_t taps = g.kh * g.kw;
  for (int64_t c = 0; c < g.c; ++c)
    for (int64_t t = 0; t < taps; ++t) {
      d.by_tap(to)[t * d.channels + c] = w[c * taps + t];
      d.totals(to)[c] += w[c * taps + t];
    }
}

void depthwise_bytes_row(const ConvGeom& g, const int8_t* x, int32_t zero, const void* weight, int64_t oy,
                         int64_t begin, int64_t end, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(row_i8)(g, x, zero, weight, oy, begin, end, sums);
}
void depthwise_bytes_row(const ConvGeom& g, const uint8_t* x, int32_t zero, const void* weight, int64_t oy,
                         int64_t begin, int64_t end, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(row_u8)(g, x, zero, weight, oy, begin, end, sums);
}

}  // namespace mge::simd
#endif
