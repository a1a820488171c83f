// softmax, logsoftmax and cross entropy of x [outer, size, inner] along `size`. Lanes run along the axis when it is the
// last one, along `inner` otherwise.
#include <limits>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"
#include "kernel/simd/targets.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/loss/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"
#include "kernel/simd/vec-inl.h"
#include "op/in_build.h"

#ifndef MGE_NN_SOFTMAX_ONCE
#define MGE_NN_SOFTMAX_ONCE
namespace mge::simd_nn {

template <class A>
AxisGeom axis_geom_of(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  return axis_geom(s, normalize_axis(a.op->name.c_str(), a.as<A>().axis, s.rank));
}
enum class SoftmaxOut { Prob, Log };

inline size_t xent_workspace(const KernelArgs& a) { return static_cast<size_t>(2 * a.in[1].numel()) * sizeof(float); }

inline void check_labels(const KernelArgs& a, int64_t classes) {
  const auto* label = a.in[1].data<int32_t>();
  for (int64_t i = 0; i < a.in[1].numel(); ++i)
    if (label[i] < 0 || label[i] >= classes) throw_bad_index(a.op->name.c_str(), "label", label[i], 0, classes, i);
}

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

namespace body_t = mge::body::HWY_NAMESPACE;
HWY_INLINE VF exp_v(VF x) { return body_t::exp(body_t::VF(x)).v; }
HWY_INLINE VF log_v(VF x) { return body_t::log(body_t::VF(x)).v; }

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The first n lanes of v, `other` after.
HWY_INLINE VF first_n(VF v, int n, VF other) {
  return n == kLanes ? v : hn::IfThenElse(hn::FirstN(DF(), static_cast<size_t>(n)), v, other);
}

// f(first element, row number) in parallel over rows along the last axis.
template <class F>
void each_row(const AxisGeom& g, F f) {
  parallel_for(g.outer, value_grain(4 * g.size), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) f(b * g.size, b);
    simd::stream_end();
  });
}
// f(first element, row number of lane 0, lanes): rows that lie side by side, elements of one row g.inner apart; up to
// `vectors` of them together.
template <class F>
void each_bundle(const AxisGeom& g, int64_t vectors, F f) {
  const int64_t wide = vectors * kLanes, bundles = (g.inner + wide - 1) / wide;
  parallel_for(g.outer * bundles, value_grain(4 * g.size * wide), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      int64_t o = b / bundles, j = b % bundles * wide;
      f(o * g.size * g.inner + j, o * g.inner + j, std::min(wide, g.inner - j));
    }
  });
}
// Vectors of rows side by side: pieces of several cache lines come faster than single ones, and all of a bundle stays
// in the first cache.
constexpr int64_t kMostVectors = 4;
int64_t vectors_of(const AxisGeom& g) {
  return std::clamp<int64_t>(machine().l1 / 2 / std::max<int64_t>(1, g.size * kLanes * int64_t{sizeof(float)}), 1,
                             kMostVectors);
}
// f(first lane, lanes) for the vectors of n lanes.
template <class F>
HWY_INLINE void each_lanes(int64_t n, F f) {
  for (int64_t j = 0; j < n; j += kLanes) f(j, static_cast<int>(std::min<int64_t>(kLanes, n - j)));
}

// The maximum of each lane's elements; NaN is passed over.
HWY_INLINE VF max_of(const float* x, int64_t n) {
  const VF lowest = set(kLowest);
  VF m[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) m[k] = hn::Max(load_n(x + i + k * kLanes, kLanes), m[k]);
  for (; i < n; i += kLanes) {
    const int k = static_cast<int>(std::min<int64_t>(kLanes, n - i));
    m[0] = hn::Max(first_n(load_n(x + i, k), k, lowest), m[0]);
  }
  return hn::Max(hn::Max(m[0], m[1]), hn::Max(m[2], m[3]));
}

// Probabilities of rows of whole cache lines, past the cache (non-temporal). While the exponentials of a row are
// computed, the row before is scaled and stored and the row after is fetched, so that neither memory nor arithmetic
// waits for the other. It is fetched into the second cache: the first is full. NOTE(perf): 26 GB/s on one core, 20 into
// the first cache, 15 with one pass after the other.
constexpr int64_t kLongestStreamed = 8192;  // two rows of exponentials and one to come stay in the second cache
void softmax_streamed(const AxisGeom& g, const float* x, float* y, float* top, float* sum) {
  const DF d;
  const int64_t n = g.size;
  constexpr int64_t kApart = 256;  // rows of a page's length would share the sets of the cache
  parallel_for(g.outer, 4 * value_grain(n), [&](int64_t b, int64_t e) {
    if (b >= e) return;
    float *exps = simd::scratch(simd::Scratch::Out, 2 * n + kApart), *before = exps + n + kApart;
    VF scale = hn::Zero(d);
    auto row = [&](int64_t r, auto finish) HWY_ATTR {
      const float *px = x + r * n, *next = r + 1 < e ? px + n : px;
      const VF top_v = hn::MaxOfLanes(d, max_of(px, n));
      VF acc = hn::Zero(d);
      for (int64_t i = 0; i < n; i += kLanes) {
        __builtin_prefetch(next + i, 0, 2);
        const VF v = exp_v(hn::Sub(hn::LoadU(d, px + i), top_v));
        acc = hn::Add(acc, v);
        hn::Store(v, d, exps + i);
        finish(i, before, scale);
      }
      const VF sum_v = hn::SumOfLanes(d, acc);
      if (top) top[r] = hn::GetLane(top_v), sum[r] = hn::GetLane(sum_v);
      scale = hn::Div(set(1.f), sum_v);
      std::swap(exps, before);
    };
    auto finish = [&](float* to) HWY_ATTR {
      return [=](int64_t i, const float* from, VF by)
                 HWY_ATTR { hn::Stream(hn::Mul(hn::Load(DF(), from + i), by), DF(), to + i); };
    };
    row(b, [](int64_t, const float*, VF) {});
    for (int64_t r = b + 1; r < e; ++r) row(r, finish(y + (r - 1) * n));
    for (int64_t i = 0; i < n; i += kLanes) finish(y + (e - 1) * n)(i, before, scale);
    simd::stream_end();
  });
}

// top and sum, when given, receive max and sum(exp(x - max)) of every row.
template <SoftmaxOut kOut>
void softmax_core(const AxisGeom& g, const float* x, float* y, float* top, float* sum) {
  const DF d;
  if (g.inner == 1) {
    const bool stream = streams(g.outer * g.size * static_cast<int64_t>(sizeof(float))) && g.size >= 128;
    if (kOut == SoftmaxOut::Prob && stream && g.size <= kLongestStreamed && simd::whole_lines(y, g.size))
      return softmax_streamed(g, x, y, top, sum);
    each_row(g, [&](int64_t first, int64_t row) {
      const float* px = x + first;
      simd::StreamedRow out(stream, y + first, g.size);
      float* py = out.at;
      VF mv = hn::MaxOfLanes(d, max_of(px, g.size)), acc = hn::Zero(d);
      each_vector(g.size, [&](int64_t i, int k) HWY_ATTR {
        VF e = exp_v(hn::Sub(load_n(px + i, k), mv));
        acc = hn::Add(acc, first_n(e, k, hn::Zero(d)));
        if (kOut == SoftmaxOut::Prob) store_n(e, py + i, k);
      });
      VF sv = hn::SumOfLanes(d, acc);
      const float* next = row + 1 < g.outer ? px + g.size : nullptr;
      if (top) top[row] = hn::GetLane(mv), sum[row] = hn::GetLane(sv);
      if (kOut == SoftmaxOut::Prob) {
        VF scale = hn::Div(set(1.f), sv);
        each_vector(g.size, [&](int64_t i, int k) HWY_ATTR { store_n(hn::Mul(load_n(py + i, k), scale), py + i, k); });
      } else {
        VF ls = log_v(sv);
        each_vector(g.size, [&](int64_t i, int k)
                                HWY_ATTR { store_n(hn::Sub(hn::Sub(load_n(px + i, k), mv), ls), py + i, k); });
      }
      out.finish(next);
    });
    return;
  }
  // In scratch memory: elements of a row are often a multiple of a page apart and would share the sets of the cache.
  const int64_t vectors = vectors_of(g), wide = vectors * kLanes;
  each_bundle(g, vectors, [&](int64_t first, int64_t row, int64_t n) {
    float* kept = simd::scratch(simd::Scratch::Out, g.size * wide);
    HWY_ALIGN float m[kMostVectors * kLanes], acc[kMostVectors * kLanes];
    each_lanes(wide,
               [&](int64_t j, int) HWY_ATTR { hn::Store(set(kLowest), d, m + j), hn::Store(hn::Zero(d), d, acc + j); });
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
        const VF v = load_n(x + first + i * g.inner + j, k);
        hn::Store(v, d, kept + i * wide + j);
        hn::Store(hn::Max(v, hn::Load(d, m + j)), d, m + j);
      });
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int) HWY_ATTR {
        float* at = kept + i * wide + j;
        const VF e = exp_v(hn::Sub(hn::Load(d, at), hn::Load(d, m + j)));
        hn::Store(hn::Add(hn::Load(d, acc + j), e), d, acc + j);
        if (kOut == SoftmaxOut::Prob) hn::Store(e, d, at);
      });
    each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
      if (top) store_n(hn::Load(d, m + j), top + row + j, k), store_n(hn::Load(d, acc + j), sum + row + j, k);
      const VF s = hn::Load(d, acc + j);
      hn::Store(kOut == SoftmaxOut::Log ? log_v(s) : hn::Div(set(1.f), s), d, acc + j);
    });
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
        const VF v = hn::Load(d, kept + i * wide + j), s = hn::Load(d, acc + j);
        store_n(kOut == SoftmaxOut::Prob ? hn::Mul(v, s) : hn::Sub(hn::Sub(v, hn::Load(d, m + j)), s),
                y + first + i * g.inner + j, k);
      });
  });
}

void softmax(const KernelArgs& a) {
  softmax_core<SoftmaxOut::Prob>(axis_geom_of<SoftmaxAttrs>(a), a.in[0].data<float>(), a.out[0].data<float>(), nullptr,
                                 nullptr);
}
void logsoftmax(const KernelArgs& a) {
  softmax_core<SoftmaxOut::Log>(axis_geom_of<SoftmaxAttrs>(a), a.in[0].data<float>(), a.out[0].data<float>(), nullptr,
                                nullptr);
}

// gx = join(y, gy, sum over the axis of term(y, gy))
template <class T, class J>
void backward_core(const KernelArgs& a, T term, J join) {
  AxisGeom g = axis_geom_of<SoftmaxAttrs>(a);
  const float *y = a.in[0].data<float>(), *gy = a.in[1].data<float>();
  float* gx = a.out[0].data<float>();
  if (g.inner == 1) {
    each_row(g, [&](int64_t first, int64_t) {
      VF total = set(
          sum_of(g.size, [&](int64_t i, int k) { return term(load_n(y + first + i, k), load_n(gy + first + i, k)); }));
      each_vector(g.size, [&](int64_t i, int k) {
        store_n(join(load_n(y + first + i, k), load_n(gy + first + i, k), total), gx + first + i, k);
      });
    });
    return;
  }
  each_bundle(g, kMostVectors, [&](int64_t first, int64_t, int64_t n) {
    const DF d;
    HWY_ALIGN float totals[kMostVectors * kLanes] = {};
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
        const int64_t at = first + i * g.inner + j;
        hn::Store(hn::Add(hn::Load(d, totals + j), term(load_n(y + at, k), load_n(gy + at, k))), d, totals + j);
      });
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
        const int64_t at = first + i * g.inner + j;
        store_n(join(load_n(y + at, k), load_n(gy + at, k), hn::Load(d, totals + j)), gx + at, k);
      });
  });
}

void softmax_bwd(const KernelArgs& a) {
  backward_core(
      a, [](VF y, VF gy) { return hn::Mul(y, gy); }, [](VF y, VF gy, VF dot) { return hn::Mul(y, hn::Sub(gy, dot)); });
}
void logsoftmax_bwd(const KernelArgs& a) {
  backward_core(
      a, [](VF, VF gy) { return gy; }, [](VF y, VF gy, VF sum) { return hn::NegMulAdd(exp_v(y), sum, gy); });
}

void softmax_xent(const KernelArgs& a) {
  AxisGeom g = axis_geom_of<XentAttrs>(a);
  check_labels(a, g.size);
  const float* x = a.in[0].data<float>();
  const auto* label = a.in[1].data<int32_t>();
  int64_t rows = g.outer * g.inner;
  float *loss = a.out[0].data<float>(), *top = static_cast<float*>(a.workspace), *sum = top + rows;
  softmax_core<SoftmaxOut::Prob>(g, x, a.out[1].data<float>(), top, sum);
  for (int64_t r = 0; r < rows; ++r) loss[r] = x[(r / g.inner * g.size + label[r]) * g.inner + r % g.inner];
  each_vector(rows, [&](int64_t i, int k) {
    store_n(hn::Sub(log_v(load_n(sum + i, k)), hn::Sub(load_n(loss + i, k), load_n(top + i, k))), loss + i, k);
  });
}

void softmax_xent_bwd(const KernelArgs& a) {
  AxisGeom g = axis_geom_of<XentAttrs>(a);
  check_labels(a, g.size);
  const float *p = a.in[0].data<float>(), *gl = a.in[2].data<float>();
  const auto* label = a.in[1].data<int32_t>();
  float* gx = a.out[0].data<float>();
  if (g.inner == 1) {
    each_row(g, [&](int64_t first, int64_t row) {
      float at_label = p[first + label[row]];  // before gx, which may be the same memory
      VF gv = set(gl[row]);
      each_vector(g.size, [&](int64_t i, int k) { store_n(hn::Mul(load_n(p + first + i, k), gv), gx + first + i, k); });
      gx[first + label[row]] = (at_label - 1) * gl[row];
    });
    return;
  }
  each_bundle(g, kMostVectors, [&](int64_t first, int64_t row, int64_t n) {
    float at_label[kMostVectors * kLanes];
    for (int64_t j = 0; j < n; ++j) at_label[j] = p[first + label[row + j] * g.inner + j];
    for (int64_t i = 0; i < g.size; ++i)
      each_lanes(n, [&](int64_t j, int k) HWY_ATTR {
        const int64_t at = first + i * g.inner + j;
        store_n(hn::Mul(load_n(p + at, k), load_n(gl + row + j, k)), gx + at, k);
      });
    for (int64_t j = 0; j < n; ++j) gx[first + label[row + j] * g.inner + j] = (at_label[j] - 1) * gl[row + j];
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_bwd);
HWY_EXPORT(logsoftmax);
HWY_EXPORT(logsoftmax_bwd);
HWY_EXPORT(softmax_xent);
HWY_EXPORT(softmax_xent_bwd);

void register_softmax(KernelRegistry& r) {
  add(r, "softmax", "simd_softmax",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(softmax)
        (a);
      },
      {.flags = kInPlace0});
  add(r, "softmax_bwd", "simd_softmax_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(softmax_bwd)
        (a);
      },
      {.flags = kInPlaceAny});
  add(r, "logsoftmax", "simd_logsoftmax",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(logsoftmax)
        (a);
      },
      {.flags = kInPlace0});
  add(r, "logsoftmax_bwd", "simd_logsoftmax_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(logsoftmax_bwd)
        (a);
      },
      {.flags = kInPlaceAny});
  add(r, "softmax_xent", "simd_softmax_xent",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(softmax_xent)
        (a);
      },
      {.workspace = xent_workspace});
  add(r, "softmax_xent_bwd", "simd_softmax_xent_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(softmax_xent_bwd)
        (a);
      },
      {.flags = kInPlace0});
}

}  // namespace mge::simd_nn
#endif
