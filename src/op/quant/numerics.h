// The numbers of quantised tensors, defined here and nowhere else (docs/numerics.md, "Quantised numbers"). Every kernel
// uses these functions or is tested to give their integers; scales are float32 in all of them.
//   quantise    q = clip(round(x / s) + z, lo, hi)       x / s in float32, halves away from zero; NaN gives lo
//   dequantise  x = float32(q - z) * s
//   product     a = sum (qx - zx) * (qw - zw) + qb        exact in integers, then saturated to 32 bits
//               v = float32(a) * (sx * sw)                sx * sw rounded to float32 once
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/quant.h"

namespace mge::quant {

/// C's round: to nearest, halves away from zero.
template <class T>
inline T round_away(T x) {
  const T t = std::trunc(x);
  return std::fabs(x - t) >= T(0.5) ? t + std::copysign(T(1), x) : t;  // x - t is exact
}

template <class T>
inline int64_t quantise(T x, T scale, int32_t zero, QuantRange range) {
  const double v = static_cast<double>(round_away(x / scale)) + zero;
  if (!(v >= static_cast<double>(range.lo))) return range.lo;
  return v >= static_cast<double>(range.hi) ? range.hi : static_cast<int64_t>(v);
}

inline float dequantise(int64_t q, int32_t zero, float scale) { return static_cast<float>(q - zero) * scale; }

inline int32_t saturate32(int64_t v) {
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : static_cast<int32_t>(v);
}

/// Scale of a product, per tensor or of one channel.
inline float product_scale(float x, float w) { return x * w; }

/// Which scale and zero point element `i` of a dense tensor has: those of channel (i / inner) % count.
class Channels {
 public:
  Channels(const Quant& q, const Shape& s) {
    if (q.per_tensor()) {
      one_scale_ = static_cast<float>(q.scale);
      one_zero_ = q.zero_point;
      return;
    }
    const QuantChannels& c = q.channels();
    scale_ = c.scale.data();
    zero_ = c.zero_point.data();
    count_ = static_cast<int64_t>(c.scale.size());
    inner_ = 1;
    for (int i = c.axis + c.span; i < s.rank; ++i) inner_ *= s[i];
  }
  int64_t count() const { return count_; }
  float scale(int64_t channel) const { return scale_ ? scale_[channel] : one_scale_; }
  int32_t zero(int64_t channel) const { return zero_ ? zero_[channel] : one_zero_; }
  /// Calls f(begin, end, scale, zero) for the stretches of [begin, end) that share a channel.
  template <class F>
  void each(int64_t begin, int64_t end, F f) const {
    if (!scale_) return f(begin, end, one_scale_, one_zero_);
    while (begin < end) {
      const int64_t block = begin / inner_, stop = std::min(end, (block + 1) * inner_), channel = block % count_;
      f(begin, stop, scale_[channel], zero_[channel]);
      begin = stop;
    }
  }

 private:
  const float* scale_ = nullptr;
  const int32_t* zero_ = nullptr;
  float one_scale_ = 1;
  int32_t one_zero_ = 0;
  int64_t count_ = 1, inner_ = 1;
};

}  // namespace mge::quant
