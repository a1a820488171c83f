// Batch normalisation of x [outer, channels, inner], in memory row-major ("planes") or channels-last ("lanes" along
// channels). Statistics come from blocks of about 1k elements of a channel, each summed in floats while it is in the
// cache, then joined in doubles in block order (Chan, Golub & LeVeque 1979): one pass over memory and no cancellation.
// In a block the pixels of an image go round 16 partial sums, which are folded in halves, image after image. Both
// memory orders and every instruction set with fma do it so: the same bits for all of them and for any number of
// threads.
#include <cmath>

#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/layouts.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"
#include "op/norm/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/norm/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

#ifndef MGE_NN_BATCH_NORM_ONCE
#define MGE_NN_BATCH_NORM_ONCE
namespace mge::simd_nn {

constexpr int64_t kPartials = 16;

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

// Two floats per channel and block, then three per channel.
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

constexpr int kVectors = static_cast<int>(kPartials) / kLanes;

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
// sums[s][c] += the terms of `pixels` pixels, for n <= kWide channels. add(acc, i, c, k) adds those of pixel i,
// channels [c, c+k), to acc[0..kSums). The partial sums are rows in the first cache, so that memory is read in the
// order it lies in.
constexpr int64_t kWide = 64;
template <int kSums, class Add>
HWY_INLINE void sum_lanes(int64_t pixels, int64_t n, Add add, float (*sums)[kWide]) {
  const DF d;
  HWY_ALIGN float part[kSums][kPartials][kWide];
  const int64_t rows = std::min(pixels, kPartials);
  for (auto& one : part)
    for (int64_t j = 0; j < rows; ++j) std::fill_n(one[j], kWide, 0.f);
  for (int64_t i = 0; i < pixels; ++i)
    each_vector(n, [&](int64_t c, int k) {
      VF acc[kSums];
      for (int s = 0; s < kSums; ++s) acc[s] = hn::Load(d, part[s][i % kPartials] + c);
      add(acc, i, c, k);
      for (int s = 0; s < kSums; ++s) hn::Store(acc[s], d, part[s][i % kPartials] + c);
    });
  for (int s = 0; s < kSums; ++s)
    for (int64_t c = 0; c < n; c += kLanes) {
      // Rows that no pixel fell to would add zeros to sums that are never negative zeros.
      for (int64_t half = kPartials / 2; half > 0; half /= 2)
        for (int64_t j = 0; j < half && j + half < rows; ++j)
          hn::Store(hn::Add(hn::Load(d, part[s][j] + c), hn::Load(d, part[s][j + half] + c)), d, part[s][j] + c);
      hn::Store(hn::Add(hn::Load(d, sums[s] + c), hn::Load(d, part[s][0] + c)), d, sums[s] + c);
    }
}
// v in the first k lanes, 0 in the others.
HWY_INLINE VF keep_n(VF v, int k) {
  return k == kLanes ? v : hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(k)), v);
}

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
  void channels(const BnPlan& p, const BnPlan::Block& b, const float* x, const float*, int64_t, int64_t n,
                float (*two)[kWide]) const {
    const int64_t step = p.g.channels;
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      sum_lanes<1>(
          b.pixels, n,
          [&](VF* acc, int64_t i, int64_t c, int k) { acc[0] = hn::Add(acc[0], load_n(q + i * step + c, k)); }, two);
    }
    const VF count = set(static_cast<float>(b.images * b.pixels));
    for (int64_t c = 0; c < n; c += kLanes) hn::Store(hn::Div(hn::Load(DF(), two[0] + c), count), DF(), two[0] + c);
    for (int64_t r = 0; r < b.images; ++r) {
      const float* q = x + r * p.image_step();
      sum_lanes<1>(
          b.pixels, n,
          [&](VF* acc, int64_t i, int64_t c, int k) {
            VF v = hn::Sub(load_n(q + i * step + c, k), hn::Load(DF(), two[0] + c));
            acc[0] = hn::MulAdd(v, v, acc[0]);
          },
          two + 1);
    }
  }
};

// sum(gy) and sum(gy * (x - mean))
struct GradSums {
  const float* mean;
  void plane(const BnPlan& p, const BnPlan::Block& b, const float* x, const float* gy, int64_t c, float* two) const {
    VF m = set(mean[c]);
    two[0] = two[1] = 0;
    for (int64_t r = 0; r < b.images; ++r) {
      const float *q = x + r * p.image_step(), *g = gy + r * p.image_step();
      two[0] += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) { return hn::Add(acc, load_n(g + i, k)); });
      two[1] += sum_plane(b.pixels, [&](VF acc, int64_t i, int k) {
        return hn::MulAdd(load_n(g + i, k), keep_n(hn::Sub(load_n(q + i, k), m), k), acc);
      });
    }
  }
  void channels(const BnPlan& p, const BnPlan::Block& b, const float* x, const float* gy, int64_t c0, int64_t n,
                float (*two)[kWide]) const {
    const int64_t step = p.g.channels;
    for (int64_t r = 0; r < b.images; ++r) {
      const float *q = x + r * p.image_step(), *g = gy + r * p.image_step();
      sum_lanes<2>(
          b.pixels, n,
          [&](VF* acc, int64_t i, int64_t c, int k) {
            VF v = load_n(g + i * step + c, k);
            acc[0] = hn::Add(acc[0], v);
            acc[1] = hn::MulAdd(v, hn::Sub(load_n(q + i * step + c, k), load_n(mean + c0 + c, k)), acc[1]);
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

// y[i] = f(i, lanes, channel vector getter): every element, with per-channel values broadcast or loaded along channels.
template <class F>
void each_element(const BnPlan& p, const float* x, const float* x2, float* y, F f) {
  const int64_t total = p.g.count() * p.g.channels;
  auto after = [&](const float* t, int64_t at, int64_t n) { return t && at + 2 * n <= total ? t + at + n : nullptr; };
  const bool stream = streams(total * static_cast<int64_t>(sizeof(float)));
  if (p.lanes) {
    const int64_t channels = p.g.channels, piece = std::max<int64_t>(1, 512 / channels);  // pixels
    parallel_for((p.g.count() + piece - 1) / piece, grain_for(channels * piece), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        const int64_t from = b * piece, n = std::min(piece, p.g.count() - from);
        simd::StreamedRow row(stream, y + from * channels, n * channels);
        for (int64_t i = 0; i < n; ++i)
          each_vector(channels, [&](int64_t c, int k) {
            auto of = [&](const float* per_channel) { return load_n(per_channel + c, k); };
            store_n(f((from + i) * channels + c, k, of), row.at + i * channels + c, k);
          });
        row.finish(after(x, from * channels, n * channels), after(x2, from * channels, n * channels));
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
      each_vector(n, [&](int64_t i, int k) {
        store_n(f(from + i, k, [&](const float* per_channel) { return set(per_channel[c]); }), row.at + i, k);
      });
      row.finish(after(x, from, n), after(x2, from, n));
    }
    if (stream) simd::stream_end();
  });
}

void batch_norm_train(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *bias = a.in[2].data<float>();
  float *y = a.out[0].data<float>(), *mean = a.out[1].data<float>(), *var = a.out[2].data<float>(),
        *rstd = a.out[3].data<float>();
  float* part = static_cast<float*>(a.workspace);
  float* scale = part + 2 * p.g.channels * p.blocks;
  block_stats(p, MeanM2(), x, nullptr, part);
  double count = static_cast<double>(p.g.count()), eps = a.as<BatchNormAttrs>().eps;
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
  each_element(p, x, nullptr, y, [&](int64_t i, int k, auto of) {
    return hn::MulAdd(hn::Sub(load_n(x + i, k), of(mean)), of(scale), of(bias));
  });
}

// gx = k*(gy - gb/n - xhat*gw/n) = k*gy + (x - mean)*s + t
void batch_norm_bwd(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  const float *x = a.in[0].data<float>(), *gy = a.in[1].data<float>(), *w = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *rstd = a.in[4].data<float>();
  float *gx = a.out[0].data<float>(), *gw = a.out[1].data<float>(), *gb = a.out[2].data<float>();
  float* part = static_cast<float*>(a.workspace);
  float *k1 = part + 2 * p.g.channels * p.blocks, *s = k1 + p.g.channels, *t = s + p.g.channels;
  block_stats(p, GradSums{mean}, x, gy, part);
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
    gw[c] = static_cast<float>(dot * r);
    k1[c] = static_cast<float>(k);
    s[c] = static_cast<float>(-k * r * r * dot / count);
    t[c] = static_cast<float>(-k * sum / count);
  }
  each_element(p, x, gy, gx, [&](int64_t i, int n, auto of) {
    VF v = hn::MulAdd(hn::Sub(load_n(x + i, n), of(mean)), of(s), of(t));
    return hn::MulAdd(load_n(gy + i, n), of(k1), v);
  });
}

// Each step rounded: the bits of the decomposition.
void batch_norm_infer(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  float eps = static_cast<float>(a.as<BatchNormAttrs>().eps);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *b = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *var = a.in[4].data<float>();
  float *y = a.out[0].data<float>(), *scale = static_cast<float*>(a.workspace), *shift = scale + p.g.channels;
  each_vector(p.g.channels, [&](int64_t c, int k) {
    VF s = hn::Div(load_n(w + c, k), hn::Sqrt(hn::Add(load_n(var + c, k), set(eps))));
    store_n(s, scale + c, k);
    store_n(hn::Sub(load_n(b + c, k), hn::Mul(load_n(mean + c, k), s)), shift + c, k);
  });
  each_element(p, x, nullptr, y,
               [&](int64_t i, int k, auto of) { return hn::Add(hn::Mul(load_n(x + i, k), of(scale)), of(shift)); });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

// x decides; per-channel operands are row-major.
void batch_norm_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const bool last = in_channels_last(in[0]);
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (last && in[i].shape == in[0].shape)
      ask_channels_last(in[i]);
    else
      ask_row_major(in[i]);
  }
  if (last) ask_channels_last(out[0]);
}

HWY_EXPORT(batch_norm_train);
HWY_EXPORT(batch_norm_bwd);
HWY_EXPORT(batch_norm_infer);

void register_batch_norm(KernelRegistry& r) {
  add(r, "batch_norm_train", "simd_batch_norm_train",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_train)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
  add(r, "batch_norm_bwd", "simd_batch_norm_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_bwd)
        (a);
      },
      {.workspace = bn_workspace, .alias = {1, -1, -1, -1}, .layouts = batch_norm_layouts});
  add(r, "batch_norm_infer", "simd_batch_norm_infer",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_infer)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
}

}  // namespace mge::simd_nn
#endif
