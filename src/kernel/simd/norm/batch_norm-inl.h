// Batch normalisation of x [outer, channels, inner], in memory row-major ("planes") or channels-last ("lanes" along
// channels). Statistics come from blocks of about 1k elements of a channel, each summed in floats while it is in the
// cache, then joined in doubles in block order (Chan, Golub & LeVeque 1979): one pass over memory and no cancellation.
// In a block the pixels of an image go round 16 partial sums, which are folded in halves, image after image. Both
// memory orders and every instruction set with fma do it so: the same bits for all of them and for any number of
// threads.
#if defined(MGE_BATCH_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_BATCH_NORM_INL_H_
#undef MGE_BATCH_NORM_INL_H_
#else
#define MGE_BATCH_NORM_INL_H_
#endif

#include <cmath>

#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/layouts.h"
#include "kernel/simd/nn_vec-inl.h"
#include "kernel/simd/shape/moves.h"
#include "op/norm/batch_norm.h"

#ifndef MGE_NN_BATCH_NORM_ONCE
#define MGE_NN_BATCH_NORM_ONCE
namespace mge::simd_nn {

constexpr int kPartials = 16;

// How the elements of a channel are cut: blocks of whole images, or of one segment of one image.
struct BnPlan {
  BatchNormGeom g;
  bool lanes;              // channels are innermost in memory
  int64_t images, pixels;  // of a block
  int64_t segments, blocks;
  explicit BnPlan(const TensorArg& x) : g(batch_norm_geom(x.shape)), lanes(g.inner == 1 || in_channels_last(x)) {
    constexpr int64_t kBlock = 1024;
    int64_t inner = std::max<int64_t>(1, g.inner);
    images = std::max<int64_t>(1, kBlock / inner);
    segments = (inner + kBlock - 1) / kBlock;
    pixels = ((inner + segments - 1) / segments + kPartials - 1) / kPartials * kPartials;
    blocks = (g.outer + images - 1) / images * segments;
  }
  struct Block {
    int64_t image, images, pixel, pixels;
    double size() const { return static_cast<double>(images * pixels); }
  };
  Block block(int64_t i) const {
    int64_t n = i / segments * images, p = i % segments * pixels;
    return {n, std::min(images, g.outer - n), p, std::max<int64_t>(0, std::min(pixels, g.inner - p))};
  }
  // Strides in elements.
  int64_t image_step() const { return g.channels * g.inner; }
  int64_t pixel_step() const { return lanes ? g.channels : 1; }
  int64_t channel_step() const { return lanes ? 1 : g.inner; }
};

// Two floats per channel and block, then four per channel.
inline size_t bn_workspace(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  return static_cast<size_t>(p.g.channels * (2 * p.blocks + 4)) * sizeof(float);
}

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

// What a block gives per channel: two sums over terms of its elements. The sums of one pixel range of one image:
//   planes: the partial sums are one vector (or more short ones) along pixels;  lanes: a row of channels each.

constexpr int kVectors = kPartials / kLanes;

template <class D>
HWY_INLINE float fold_lanes(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> h;
    return fold_lanes(h, hn::Add(hn::LowerHalf(h, v), hn::UpperHalf(h, v)));
  }
}
template <int kCount>
HWY_INLINE VF fold_vectors(VF* acc) {
#pragma GCC unroll 8
  for (int half = kCount / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int j = 0; j < half; ++j) acc[j] = hn::Add(acc[j], acc[j + half]);
  return acc[0];
}

// add(acc, i, k) adds the terms of elements [i, i+k) to acc; lanes past k must stay as they are.
template <class Add>
HWY_INLINE float sum_plane(int64_t n, Add add) {
  VF acc[kVectors];
  for (auto& v : acc) v = hn::Zero(DF());
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[v] = add(acc[v], i + v * kLanes, kLanes);
  for (int v = 0; i < n; ++v, i += kLanes) acc[v] = add(acc[v], i, static_cast<int>(std::min<int64_t>(kLanes, n - i)));
  return fold_lanes(DF(), fold_vectors<kVectors>(acc));
}
// sums[s][c] += the terms of `pixels` pixels, for n <= kWide channels. make(c, k) gives the terms of channels [c, c+k),
// which add(acc, i) those of pixel i to acc[0..kSums). The partial sums are rows in the first cache, so that memory is
// read in the order it lies in; what depends on the channel alone stays in registers.
constexpr int64_t kWide = 64;
template <int kSums>
using Partials = float[kSums][kPartials][kWide];

template <int kColumns, int kSums, class Make>
HWY_INLINE void add_columns(int64_t pixels, int64_t c, int k, const Make& make, Partials<kSums>& part) {
  const DF d;
  using Term = decltype(make(c, k));
  const Term terms[4] = {make(c, k), make(c + (kColumns > 1) * kLanes, k), make(c + (kColumns > 2) * 2 * kLanes, k),
                         make(c + (kColumns > 3) * 3 * kLanes, k)};
  auto pixel = [&](int64_t i, auto first) HWY_ATTR {
#pragma GCC unroll 4
    for (int v = 0; v < kColumns; ++v) {
      float* row = part[0][i % kPartials] + c + v * kLanes;
      VF acc[kSums];
#pragma GCC unroll 2
      for (int s = 0; s < kSums; ++s) acc[s] = first() ? hn::Zero(d) : hn::Load(d, row + s * kPartials * kWide);
      terms[v].add(acc, i, k);
#pragma GCC unroll 2
      for (int s = 0; s < kSums; ++s) hn::Store(acc[s], d, row + s * kPartials * kWide);
    }
  };
  const int64_t rows = std::min<int64_t>(pixels, kPartials);
  for (int64_t i = 0; i < rows; ++i) pixel(i, std::true_type());
  for (int64_t i = rows; i < pixels; ++i) pixel(i, std::false_type());
}
template <int kSums, class Make>
HWY_INLINE void sum_lanes(int64_t pixels, int64_t n, const Make& make, float (*sums)[kWide]) {
  const DF d;
  HWY_ALIGN Partials<kSums> part;
  int64_t c = 0;
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) add_columns<4, kSums>(pixels, c, kLanes, make, part);
  if (c + 2 * kLanes <= n) add_columns<2, kSums>(pixels, c, kLanes, make, part), c += 2 * kLanes;
  if (c + kLanes <= n) add_columns<1, kSums>(pixels, c, kLanes, make, part), c += kLanes;
  if (c < n) add_columns<1, kSums>(pixels, c, static_cast<int>(n - c), make, part);
  for (int s = 0; s < kSums; ++s)
    for (c = 0; c < n; c += kLanes) {
      VF rows[kPartials];  // those that no pixel fell to add zeros, to sums that are never negative zeros
#pragma GCC unroll 16
      for (int j = 0; j < kPartials; ++j) rows[j] = j < pixels ? hn::Load(d, part[s][j] + c) : hn::Zero(d);
      hn::Store(hn::Add(hn::Load(d, sums[s] + c), fold_vectors<kPartials>(rows)), d, sums[s] + c);
    }
}
// Rows of pixels that are fetched ahead: hardware stops at the end of each page, and between chunks of channels.
constexpr int64_t kRowsAhead = 12;
HWY_INLINE VF load_ahead(const float* p, int64_t ahead, int k) {
  __builtin_prefetch(p + ahead);
  return load_n(p, k);
}
// v in the first k lanes, 0 in the others.
HWY_INLINE VF keep_n(VF v, int k) {
  return k == kLanes ? v : hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(k)), v);
}

// What follows the normalisation: nothing here; the table of batch_norm_fused.cpp has the others.
struct NoAct {
  static constexpr bool kNone = true;
  static HWY_INLINE VF eval(VF y) { return y; }
  static HWY_INLINE VF grad(VF, VF gy) { return gy; }  // at the normalised y
};

// Mean and sum of squared distances from it.
struct MeanM2 {
  void plane(const BnPlan& p, const BnPlan::Block& b, const float* x, const float*, int64_t, float* two) const {
    float sum = 0, m2 = 0;
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      sum += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) { return hn::Add(acc, load_n(q + i, k)); });
    }
    float mean = sum / static_cast<float>(b.images * b.pixels);
    VF m = set(mean);
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      m2 += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) {
        VF v = keep_n(hn::Sub(load_n(q + i, k), m), k);
        return hn::MulAdd(v, v, acc);
      });
    }
    two[0] = mean, two[1] = m2;
  }
  struct Plain {
    const float* x;
    int64_t step;
    HWY_INLINE void add(VF* acc, int64_t i, int k) const {
      acc[0] = hn::Add(acc[0], load_ahead(x + i * step, kRowsAhead * step, k));
    }
  };
  struct Squared {
    const float* x;
    int64_t step;
    VF mean;
    HWY_INLINE void add(VF* acc, int64_t i, int k) const {
      const VF v = hn::Sub(load_n(x + i * step, k), mean);
      acc[0] = hn::MulAdd(v, v, acc[0]);
    }
  };
  void channels(const BnPlan& p, const BnPlan::Block& b, const float* x, const float*, int64_t, int64_t n,
                float (*two)[kWide]) const {
    const int64_t step = p.g.channels;
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      sum_lanes<1>(
          b.pixels, n,
          [&](int64_t c, int) HWY_ATTR {
            return Plain{q + c, step};
          },
          two);
    }
    const VF count = set(static_cast<float>(b.images * b.pixels));
    for (int64_t c = 0; c < n; c += kLanes) hn::Store(hn::Div(hn::Load(DF(), two[0] + c), count), DF(), two[0] + c);
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      sum_lanes<1>(
          b.pixels, n,
          [&](int64_t c, int) HWY_ATTR {
            return Squared{q + c, step, hn::Load(DF(), two[0] + c)};
          },
          two + 1);
    }
  }
};

// sum(g) and sum(g * (x - mean)), where g is gy before the activation: what that took is computed again from x, which
// is read anyway.
template <class Act>
struct GradSums {
  const float *mean, *scale, *bias;  // the latter two for activations alone
  void plane(const BnPlan& p, const BnPlan::Block& b, const float* x, const float* gy, int64_t c, float* two) const {
    const VF m = set(mean[c]), s = set(Act::kNone ? 0 : scale[c]), t = set(Act::kNone ? 0 : bias[c]);
    two[0] = two[1] = 0;
    for (int64_t r = 0; r < b.images; ++r) {
      const float *q = x + r * p.image_step(), *from = gy + r * p.image_step();
      auto g = [&](int64_t i, int k) HWY_ATTR {
        const VF v = load_n(from + i, k);
        if constexpr (Act::kNone) return v;
        return keep_n(Act::grad(hn::MulAdd(hn::Sub(load_n(q + i, k), m), s, t), v), k);
      };
      two[0] += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) { return hn::Add(acc, g(i, k)); });
      two[1] += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) {
        return hn::MulAdd(g(i, k), keep_n(hn::Sub(load_n(q + i, k), m), k), acc);
      });
    }
  }
  struct Term {
    const float *x, *gy;
    int64_t step;
    VF mean, scale, bias;
    HWY_INLINE void add(VF* acc, int64_t i, int k) const {
      const VF centred = hn::Sub(load_ahead(x + i * step, kRowsAhead * step, k), mean);
      VF v = load_ahead(gy + i * step, kRowsAhead * step, k);
      if constexpr (!Act::kNone) v = Act::grad(hn::MulAdd(centred, scale, bias), v);
      acc[0] = hn::Add(acc[0], v);
      acc[1] = hn::MulAdd(v, centred, acc[1]);
    }
  };
  void channels(const BnPlan& p, const BnPlan::Block& b, const float* x, const float* gy, int64_t c0, int64_t n,
                float (*two)[kWide]) const {
    auto of = [&](const float* per_channel, int64_t c, int k)
                  HWY_ATTR { return Act::kNone ? hn::Zero(DF()) : load_n(per_channel + c0 + c, k); };
    for (int64_t r = 0; r < b.images; ++r) {
      const float *q = x + r * p.image_step(), *g = gy + r * p.image_step();
      sum_lanes<2>(
          b.pixels, n,
          [&](int64_t c, int k) HWY_ATTR {
            return Term{q + c, g + c, p.g.channels, load_n(mean + c0 + c, k), of(scale, c, k), of(bias, c, k)};
          },
          two);
    }
  }
};

// part[2*(c*blocks + block)] and the one after it: the two sums.
template <class S>
void block_stats(const BnPlan& p, const S& stat, const float* x, const float* gy, float* part) {
  const int64_t channels = p.g.channels, wide = p.lanes ? kWide : 1, chunks = (channels + wide - 1) / wide;
  parallel_for(p.blocks * chunks, grain_for(p.images * p.pixels * wide), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const int64_t at = i / chunks, c0 = i % chunks * wide;
      const BnPlan::Block b = p.block(at);
      const int64_t first = b.image * p.image_step() + b.pixel * p.pixel_step() + c0 * p.channel_step();
      if (!p.lanes) {
        stat.plane(p, b, x + first, gy ? gy + first : nullptr, c0, part + 2 * (c0 * p.blocks + at));
        continue;
      }
      HWY_ALIGN float two[2][kWide] = {};
      const int64_t n = std::min(wide, channels - c0);
      stat.channels(p, b, x + first, gy ? gy + first : nullptr, c0, n, two);
      for (int64_t c = 0; c < n; ++c) {
        float* to = part + 2 * ((c0 + c) * p.blocks + at);
        to[0] = two[0][c], to[1] = two[1][c];
      }
    }
  });
}

// y[i] = f(channel)(i, lanes): every element. f is given a getter of per-channel values, broadcast or along channels,
// and gives what is to be done with the elements of those channels.
template <class F>
void each_element(const BnPlan& p, const float* x, const float* x2, float* y, F f) {
  const int64_t total = p.g.count() * p.g.channels;
  if (total == 0) return;  // of no channels, perhaps
  auto after = [&](const float* t, int64_t at, int64_t n) { return t && at + 2 * n <= total ? t + at + n : nullptr; };
  const bool stream = streams(total * static_cast<int64_t>(sizeof(float)));
  if (p.lanes) {
    const int64_t channels = p.g.channels, piece = std::max<int64_t>(4, 4096 / channels);  // pixels
    // NOTE(perf): what stays in the last cache is faster by vectors of channels, whose values wait in registers
    // (8x192x28x28 0.27 ms against 0.36); memory wants to be read as it lies (8x32x112x112 1.2 ms against 2.0).
    const bool by_channels = 3 * total * int64_t{sizeof(float)} <= machine().l3;
    parallel_for((p.g.count() + piece - 1) / piece, grain_for(channels * piece), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        const int64_t from = b * piece, n = std::min(piece, p.g.count() - from), first = from * channels;
        simd::StreamedRow row(stream, y + first, n * channels);
        auto at = [&](int64_t c, int k) HWY_ATTR {
          return f([&](const float* per_channel) HWY_ATTR { return load_n(per_channel + c, k); });
        };
        if (by_channels) {
          each_vector(channels, [&](int64_t c, int k) HWY_ATTR {
            const auto g = at(c, k);
            for (int64_t i = c; i < n * channels; i += channels) store_n(g(first + i, k), row.at + i, k);
          });
        } else {
          for (int64_t i = 0; i < n * channels; i += channels)
            each_vector(channels,
                        [&](int64_t c, int k) HWY_ATTR { store_n(at(c, k)(first + i + c, k), row.at + i + c, k); });
        }
        row.finish(after(x, first, n * channels), after(x2, first, n * channels));
      }
      if (stream) simd::stream_end();
    });
    return;
  }
  const int64_t piece = std::min<int64_t>(std::max<int64_t>(1, p.g.inner), 512),
                pieces = (p.g.inner + piece - 1) / piece;
  parallel_for(p.g.outer * p.g.channels * pieces, grain_for(piece), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const int64_t plane = b / pieces, c = plane % p.g.channels, at = b % pieces * piece;
      const int64_t from = plane * p.g.inner + at, n = std::min(piece, p.g.inner - at);
      simd::StreamedRow row(stream && n >= 128, y + from, n);
      const auto g = f([&](const float* per_channel) HWY_ATTR { return set(per_channel[c]); });
      each_vector(n, [&](int64_t i, int k) HWY_ATTR { store_n(g(from + i, k), row.at + i, k); });
      row.finish(after(x, from, n), after(x2, from, n));
    }
    if (stream) simd::stream_end();
  });
}

// y = act(normalised x + add); `add` may be null.
template <class Act>
void train(const KernelArgs& a, double eps, const float* add) {
  BnPlan p(a.in[0]);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *bias = a.in[2].data<float>();
  float *y = a.out[0].data<float>(), *mean = a.out[1].data<float>(), *var = a.out[2].data<float>(),
        *rstd = a.out[3].data<float>();
  float* part = static_cast<float*>(a.workspace);
  float* scale = part + 2 * p.g.channels * p.blocks;
  block_stats(p, MeanM2(), x, nullptr, part);
  double count = static_cast<double>(p.g.count());
  for (int64_t c = 0; c < p.g.channels; ++c) {
    auto size = [&](int64_t b) { return p.block(b).size(); };
    const float* two = part + 2 * c * p.blocks;
    double sum = 0, m2 = 0;
    for (int64_t b = 0; b < p.blocks; ++b) sum += size(b) * static_cast<double>(two[2 * b]);
    double m = sum / count;
    for (int64_t b = 0; b < p.blocks; ++b) {
      double d = static_cast<double>(two[2 * b]) - m;
      m2 += static_cast<double>(two[2 * b + 1]) + size(b) * d * d;
    }
    double v = m2 / count, r = 1 / std::sqrt(v + eps);
    mean[c] = static_cast<float>(m);
    var[c] = static_cast<float>(v);
    rstd[c] = static_cast<float>(r);
    scale[c] = static_cast<float>(r) * w[c];
  }
  if (add)
    each_element(p, x, add, y, [&](auto of) HWY_ATTR {
      return [x, add, m = of(mean), s = of(scale), t = of(bias)](int64_t i, int k) HWY_ATTR {
        return Act::eval(hn::Add(hn::MulAdd(hn::Sub(load_n(x + i, k), m), s, t), load_n(add + i, k)));
      };
    });
  else
    each_element(p, x, nullptr, y, [&](auto of) HWY_ATTR {
      return [x, m = of(mean), s = of(scale), t = of(bias)](int64_t i, int k)
                 HWY_ATTR { return Act::eval(hn::MulAdd(hn::Sub(load_n(x + i, k), m), s, t)); };
    });
}

// gx = k*(g - gb/n - xhat*gw/n) = k*g + (x - mean)*s + t, where g is gy before the activation. `bias` is for those.
template <class Act>
void bwd(const KernelArgs& a, const float* bias) {
  BnPlan p(a.in[0]);
  const float *x = a.in[0].data<float>(), *gy = a.in[1].data<float>(), *w = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *rstd = a.in[4].data<float>();
  float *gx = a.out[0].data<float>(), *gw = a.out[1].data<float>(), *gb = a.out[2].data<float>();
  float* part = static_cast<float*>(a.workspace);
  float *k1 = part + 2 * p.g.channels * p.blocks, *s = k1 + p.g.channels, *t = s + p.g.channels,
        *scale = t + p.g.channels;
  if constexpr (!Act::kNone)
    for (int64_t c = 0; c < p.g.channels; ++c) scale[c] = rstd[c] * w[c];  // as the forward pass had it
  block_stats(p, GradSums<Act>{mean, scale, bias}, x, gy, part);
  double count = static_cast<double>(p.g.count());
  for (int64_t c = 0; c < p.g.channels; ++c) {
    const float* two = part + 2 * c * p.blocks;
    double sum = 0, dot = 0;
    for (int64_t b = 0; b < p.blocks; ++b) {
      sum += static_cast<double>(two[2 * b]);
      dot += static_cast<double>(two[2 * b + 1]);
    }
    double r = static_cast<double>(rstd[c]), k = static_cast<double>(w[c]) * r;
    gb[c] = static_cast<float>(sum);
    gw[c] = count > 0 ? static_cast<float>(dot * r) : 0;  // r is NaN then
    k1[c] = static_cast<float>(k);
    s[c] = static_cast<float>(-k * r * r * dot / count);
    t[c] = static_cast<float>(-k * sum / count);
  }
  each_element(p, x, gy, gx, [&](auto of) HWY_ATTR {
    const float *scales = Act::kNone ? mean : scale, *biases = Act::kNone ? mean : bias;
    return [x, gy, m = of(mean), k1v = of(k1), sv = of(s), tv = of(t), act_scale = of(scales), act_bias = of(biases)](
               int64_t i, int n) HWY_ATTR {
      const VF centred = hn::Sub(load_n(x + i, n), m);
      VF g = load_n(gy + i, n);
      if constexpr (!Act::kNone) g = Act::grad(hn::MulAdd(centred, act_scale, act_bias), g);
      return hn::MulAdd(g, k1v, hn::MulAdd(centred, sv, tv));
    };
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
