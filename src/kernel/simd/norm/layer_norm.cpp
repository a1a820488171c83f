// Layer normalisation: one row at a time, each row read from memory once and from the cache twice more.
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"
#include "op/norm/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/norm/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"
#include "op/in_build.h"

#ifndef MGE_NN_LAYER_NORM_ONCE
#define MGE_NN_LAYER_NORM_ONCE
namespace mge::simd_nn {

// Parameter gradients are summed in at most 32 blocks of rows, joined in block order: the same bits for any thread
// count.
struct LnBlocks {
  int64_t rows, count;
  explicit LnBlocks(const LayerNormGeom& g)
      : rows(std::max<int64_t>(1, (g.rows + 31) / 32)), count((g.rows + rows - 1) / rows) {}
};
inline LayerNormGeom ln_bwd_geom(const KernelArgs& a) {
  return layer_norm_geom(a.in[0].shape, a.as<LayerNormBwdAttrs>().n_axes);
}
inline size_t ln_bwd_workspace(const KernelArgs& a) {
  LayerNormGeom g = ln_bwd_geom(a);
  return a.in.size() == 5 ? static_cast<size_t>(2 * LnBlocks(g).count * g.size) * sizeof(float) : 0;
}

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

void layer_norm(const KernelArgs& a) {
  const auto& at = a.as<LayerNormAttrs>();
  LayerNormGeom g = layer_norm_geom(a.in[0].shape, at.n_axes);
  const float *w = nullptr, *bias = nullptr;
  if (a.in.size() == 3) w = a.in[1].data<float>(), bias = a.in[2].data<float>();
  float size = static_cast<float>(g.size);
  const bool stream = streams(g.rows * g.size * static_cast<int64_t>(sizeof(float))) && g.size >= 128;
  parallel_for(g.rows, grain_for(g.size), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const float* x = a.in[0].data<float>() + b * g.size;
      float* to = a.out[0].data<float>() + b * g.size;
      const bool direct = stream && simd::whole_lines(to, g.size);
      simd::StreamedRow out(stream && !direct, to, g.size);
      const float* next = b + 1 < g.rows ? x + g.size : x;
      float mean = sum_of(g.size, [&](int64_t i, int k) { return load_n(x + i, k); }) / size;
      VF m = set(mean);
      // Nothing else asks for memory in this pass, so the next row is fetched here, past the first cache.
      float var = sum_of(g.size,
                         [&](int64_t i, int k) {
                           if (direct) __builtin_prefetch(next + i, 0, 2);
                           VF v = hn::Sub(load_n(x + i, k), m);
                           return hn::Mul(v, v);
                         }) /
                  size;
      float rstd = 1.0f / std::sqrt(var + static_cast<float>(at.eps));
      VF r = set(rstd);
      // Inlined, so that k is a constant where rows are whole.
      auto normal = [&](int64_t i, int k) HWY_ATTR __attribute__((always_inline)) {
        VF v = hn::Mul(hn::Sub(load_n(x + i, k), m), r);
        return w ? hn::MulAdd(v, load_n(w + i, k), load_n(bias + i, k)) : v;
      };
      if (direct) {
        stream_row(to, g.size, [&](int64_t i) HWY_ATTR { return normal(i, kLanes); });
      } else {
        each_vector(g.size, [&](int64_t i, int k) HWY_ATTR { store_n(normal(i, k), out.at + i, k); });
        out.finish(next);
      }
      a.out[1].data<float>()[b] = mean;
      a.out[2].data<float>()[b] = rstd;
    }
    if (stream) simd::stream_end();
  });
}

void layer_norm_bwd(const KernelArgs& a) {
  LayerNormGeom g = ln_bwd_geom(a);
  LnBlocks blocks(g);
  const float *mean = a.in[2].data<float>(), *rstd = a.in[3].data<float>(),
              *w = a.in.size() == 5 ? a.in[4].data<float>() : nullptr;
  float* part = static_cast<float*>(a.workspace);  // per block: gw [size], gb [size]
  float size = static_cast<float>(g.size);
  parallel_for(blocks.count, grain_for(blocks.rows * g.size), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      float* gw = w ? part + 2 * b * g.size : nullptr;
      if (w) std::memset(gw, 0, static_cast<size_t>(2 * g.size) * sizeof(float));
      for (int64_t row = b * blocks.rows; row < std::min(g.rows, (b + 1) * blocks.rows); ++row) {
        const float *x = a.in[0].data<float>() + row * g.size, *gy = a.in[1].data<float>() + row * g.size;
        float* gx = a.out[0].data<float>() + row * g.size;
        VF m = set(mean[row]), r = set(rstd[row]);
        auto scaled = [&](int64_t i, int k) {
          VF v = load_n(gy + i, k);
          return w ? hn::Mul(v, load_n(w + i, k)) : v;
        };
        auto xhat = [&](int64_t i, int k) { return hn::Mul(hn::Sub(load_n(x + i, k), m), r); };
        VF sum = set(sum_of(g.size, scaled) / size);
        VF dot = set(sum_of(g.size, [&](int64_t i, int k) { return hn::Mul(scaled(i, k), xhat(i, k)); }) / size);
        each_vector(g.size, [&](int64_t i, int k) {
          VF h = xhat(i, k), v = load_n(gy + i, k);  // both before gx, which may be gy's memory
          store_n(hn::Mul(r, hn::NegMulAdd(h, dot, hn::Sub(scaled(i, k), sum))), gx + i, k);
          if (!w) return;
          store_n(hn::MulAdd(v, h, load_n(gw + i, k)), gw + i, k);
          store_n(hn::Add(v, load_n(gw + g.size + i, k)), gw + g.size + i, k);
        });
      }
    }
  });
  if (!w) return;
  for (int half = 0; half < 2; ++half)
    each_vector(g.size, [&](int64_t i, int k) {
      VF sum = hn::Zero(DF());
      for (int64_t b = 0; b < blocks.count; ++b) sum = hn::Add(sum, load_n(part + (2 * b + half) * g.size + i, k));
      store_n(sum, a.out[1 + half].data<float>() + i, k);
    });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_bwd);

void register_layer_norm(KernelRegistry& r) {
  add(r, "layer_norm", "simd_layer_norm",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(layer_norm)
        (a);
      },
      {.flags = kInPlace0});
  add(r, "layer_norm_bwd", "simd_layer_norm_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(layer_norm_bwd)
        (a);
      },
      {.workspace = ln_bwd_workspace, .alias = {1, -1, -1, -1}});
}

}  // namespace mge::simd_nn
#endif
