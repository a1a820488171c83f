// Depthwise convolution of bytes on channels-last memory: x [n,h,w,c], sums [n,oh,ow,c], lanes along the channels.
// Exact integers. Raw pointers, no checks.
#pragma once
#include <cstdint>

#include "op/conv/conv_geom.h"

namespace mge::simd {

/// The weight by taps: int32 [channels], the sum of all of a channel's taps; then int16 [taps][channels]. Taps are
/// filled up to an even number and channels to a vector, with zeros.
struct DepthwiseBytes {
  int64_t channels, taps;
  explicit DepthwiseBytes(const ConvGeom& g);
  int64_t bytes() const { return channels * (4 + 2 * taps); }
  int32_t* totals(void* p) const { return static_cast<int32_t*>(p); }
  const int32_t* totals(const void* p) const { return static_cast<const int32_t*>(p); }
  int16_t* by_tap(void* p) const { return reinterpret_cast<int16_t*>(totals(p) + channels); }
  const int16_t* by_tap(const void* p) const { return reinterpret_cast<const int16_t*>(totals(p) + channels); }
};
/// From w [c][taps], less its zero points.
void depthwise_bytes_weights(const ConvGeom& g, const int16_t* w, void* to);

/// sums[i][c] = sum over taps of w * (x - zero), for outputs i of [begin, end) of row oy of an image. `x` is that
/// image, at most kDepthwiseBytesTaps taps.
inline constexpr int64_t kDepthwiseBytesTaps = 64;
void depthwise_bytes_row(const ConvGeom& g, const int8_t* x, int32_t zero, const void* weight, int64_t oy,
                         int64_t begin, int64_t end, int32_t* sums);
void depthwise_bytes_row(const ConvGeom& g, const uint8_t* x, int32_t zero, const void* weight, int64_t oy,
                         int64_t begin, int64_t end, int32_t* sums);

}  // namespace mge::simd
