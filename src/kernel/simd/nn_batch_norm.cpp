// Batch normalisation of x [outer, channels, inner]. Statistics come from blocks of about 16k elements, each summed in
// floats while it is in the cache, then joined in doubles in block order: one pass over memory, the same bits for any
// number of threads, and no cancellation (Chan, Golub & LeVeque 1979).
#include <cmath>

#include "base/parallel.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"
#include "op/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/nn_batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

#ifndef MGE_NN_BATCH_NORM_ONCE
#define MGE_NN_BATCH_NORM_ONCE
namespace mge::simd_nn {

// How x is cut: blocks of `rows` along the outer axis. `flat` (inner == 1) puts lanes along channels.
struct BnPlan {
  BatchNormGeom g;
  bool flat;
  int64_t rows, blocks;
  explicit BnPlan(const Shape& x) : g(batch_norm_geom(x)), flat(g.inner == 1) {
    int64_t per_row = std::max<int64_t>(1, flat ? std::min<int64_t>(g.channels, 64) : g.inner);
    rows = std::max<int64_t>(1, 16384 / per_row);
    blocks = (g.outer + rows - 1) / rows;
  }
  int64_t begin(int64_t block) const { return block * rows; }
  int64_t end(int64_t block) const { return std::min(g.outer, (block + 1) * rows); }
};

// Two floats per channel and block, then three per channel.
inline size_t bn_workspace(const KernelArgs& a) {
  BnPlan p(a.in[0].shape);
  return static_cast<size_t>(p.g.channels * (2 * p.blocks + 4)) * sizeof(float);
}

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

// part[2*(c*blocks + block)] = what stat(first element, rows, &two) gives; lanes along channels when flat.
// The block functions below read `len` elements per row, rows being channels*inner apart.

struct MeanM2 {
  // Mean and sum of squared distances from it.
  static void plane(const BnPlan& p, const float* x, const float*, int64_t rows, int64_t, float* two) {
    int64_t step = p.g.channels * p.g.inner, n = p.g.inner;
    float sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += sum_of(n, [&](int64_t i, int k) { return load_n(x + r * step + i, k); });
    float mean = sum / static_cast<float>(rows * n), m2 = 0;
    VF m = set(mean);
    for (int64_t r = 0; r < rows; ++r)
      m2 += sum_of(n, [&](int64_t i, int k) {
        VF v = hn::Sub(load_n(x + r * step + i, k), m);
        return hn::Mul(v, v);
      });
    two[0] = mean, two[1] = m2;
  }
  static void lanes(const BnPlan& p, const float* x, const float*, int64_t rows, int64_t, int k, VF* a, VF* b) {
    const DF d;
    VF sum = hn::Zero(d), m2 = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) sum = hn::Add(sum, load_n(x + r * p.g.channels, k));
    VF mean = hn::Div(sum, set(static_cast<float>(rows)));
    for (int64_t r = 0; r < rows; ++r) {
      VF v = hn::Sub(load_n(x + r * p.g.channels, k), mean);
      m2 = hn::MulAdd(v, v, m2);
    }
    *a = mean, *b = m2;
  }
};

struct GradSums {
  const float* mean;
  // sum(gy) and sum(gy * (x - mean))
  void plane(const BnPlan& p, const float* x, const float* gy, int64_t rows, int64_t c, float* two) const {
    int64_t step = p.g.channels * p.g.inner, n = p.g.inner;
    VF m = set(mean[c]);
    two[0] = two[1] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      two[0] += sum_of(n, [&](int64_t i, int k) { return load_n(gy + r * step + i, k); });
      two[1] += sum_of(n, [&](int64_t i, int k) {
        return hn::Mul(load_n(gy + r * step + i, k), hn::Sub(load_n(x + r * step + i, k), m));
      });
    }
  }
  void lanes(const BnPlan& p, const float* x, const float* gy, int64_t rows, int64_t c, int k, VF* a, VF* b) const {
    const DF d;
    VF m = load_n(mean + c, k);
    *a = *b = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      VF g = load_n(gy + r * p.g.channels, k);
      *a = hn::Add(*a, g);
      *b = hn::MulAdd(g, hn::Sub(load_n(x + r * p.g.channels, k), m), *b);
    }
  }
};

template <class S>
void block_stats(const BnPlan& p, const S& stat, const float* x, const float* gy, float* part) {
  int64_t channels = p.g.channels;
  if (p.flat) {
    int64_t chunks = (channels + 63) / 64;
    parallel_for(p.blocks * chunks, grain_for(p.rows * 64), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        int64_t block = b / chunks, c0 = b % chunks * 64, first = p.begin(block) * channels + c0;
        each_vector(std::min<int64_t>(64, channels - c0), [&](int64_t i, int k) {
          VF u, v;
          stat.lanes(p, x + first + i, gy ? gy + first + i : nullptr, p.end(block) - p.begin(block), c0 + i, k, &u, &v);
          HWY_ALIGN float tu[kLanes], tv[kLanes];
          hn::Store(u, DF(), tu);
          hn::Store(v, DF(), tv);
          for (int j = 0; j < k; ++j) {
            float* two = part + 2 * ((c0 + i + j) * p.blocks + block);
            two[0] = tu[j], two[1] = tv[j];
          }
        });
      }
    });
    return;
  }
  parallel_for(p.blocks * channels, grain_for(p.rows * p.g.inner), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      int64_t block = b / channels, c = b % channels, first = (p.begin(block) * channels + c) * p.g.inner;
      stat.plane(p, x + first, gy ? gy + first : nullptr, p.end(block) - p.begin(block), c,
                 part + 2 * (c * p.blocks + block));
    }
  });
}

// f(offset, lanes, channel vector getter): every element, with per-channel values broadcast or loaded along channels.
template <class F>
void each_element(const BnPlan& p, F f) {
  if (p.flat) {
    parallel_for(p.g.outer, grain_for(p.g.channels), [&](int64_t b, int64_t e) {
      for (; b < e; ++b)
        each_vector(p.g.channels, [&](int64_t c, int k) {
          f(b * p.g.channels + c, k, [&](const float* per_channel) { return load_n(per_channel + c, k); });
        });
    });
    return;
  }
  parallel_for(p.g.outer * p.g.channels, grain_for(p.g.inner), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      int64_t c = b % p.g.channels;
      each_vector(p.g.inner, [&](int64_t i, int k) {
        f(b * p.g.inner + i, k, [&](const float* per_channel) { return set(per_channel[c]); });
      });
    }
  });
}

void batch_norm_train(const KernelArgs& a) {
  BnPlan p(a.in[0].shape);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *bias = a.in[2].data<float>();
  float *y = a.out[0].data<float>(), *mean = a.out[1].data<float>(), *var = a.out[2].data<float>(),
        *rstd = a.out[3].data<float>();
  float* part = static_cast<float*>(a.workspace);
  float* scale = part + 2 * p.g.channels * p.blocks;
  block_stats(p, MeanM2(), x, nullptr, part);
  double count = static_cast<double>(p.g.count()), eps = a.as<BatchNormAttrs>().eps;
  for (int64_t c = 0; c < p.g.channels; ++c) {
    auto size = [&](int64_t b) { return static_cast<double>((p.end(b) - p.begin(b)) * p.g.inner); };
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
  each_element(p, [&](int64_t i, int k, auto of) {
    store_n(hn::MulAdd(hn::Sub(load_n(x + i, k), of(mean)), of(scale), of(bias)), y + i, k);
  });
}

// gx = k*(gy - gb/n - xhat*gw/n) = k*gy + (x - mean)*s + t
void batch_norm_bwd(const KernelArgs& a) {
  BnPlan p(a.in[0].shape);
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
  each_element(p, [&](int64_t i, int n, auto of) {
    VF v = hn::MulAdd(hn::Sub(load_n(x + i, n), of(mean)), of(s), of(t));
    store_n(hn::MulAdd(load_n(gy + i, n), of(k1), v), gx + i, n);
  });
}

// Each step rounded: the bits of the decomposition.
void batch_norm_infer(const KernelArgs& a) {
  BnPlan p(a.in[0].shape);
  float eps = static_cast<float>(a.as<BatchNormAttrs>().eps);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *b = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *var = a.in[4].data<float>();
  float *y = a.out[0].data<float>(), *scale = static_cast<float*>(a.workspace), *shift = scale + p.g.channels;
  each_vector(p.g.channels, [&](int64_t c, int k) {
    VF s = hn::Div(load_n(w + c, k), hn::Sqrt(hn::Add(load_n(var + c, k), set(eps))));
    store_n(s, scale + c, k);
    store_n(hn::Sub(load_n(b + c, k), hn::Mul(load_n(mean + c, k), s)), shift + c, k);
  });
  each_element(p, [&](int64_t i, int k, auto of) {
    store_n(hn::Add(hn::Mul(load_n(x + i, k), of(scale)), of(shift)), y + i, k);
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(batch_norm_train);
HWY_EXPORT(batch_norm_bwd);
HWY_EXPORT(batch_norm_infer);

void register_batch_norm(KernelRegistry& r) {
  add(r, "batch_norm_train", "simd_batch_norm_train",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_train)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace});
  add(r, "batch_norm_bwd", "simd_batch_norm_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_bwd)
        (a);
      },
      {.workspace = bn_workspace, .alias = {1, -1, -1, -1}});
  add(r, "batch_norm_infer", "simd_batch_norm_infer",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_infer)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace});
}

}  // namespace mge::simd_nn
#endif
