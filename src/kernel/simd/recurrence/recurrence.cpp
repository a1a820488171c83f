// Recurrent layers: the weight of the state is packed once, then each step is one product and one pass over its gates.
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"
#include "op/recurrence/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/recurrence/recurrence.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"
#include "kernel/simd/vec-inl.h"

#ifndef MGE_NN_RECURRENCE_ONCE
#define MGE_NN_RECURRENCE_ONCE
namespace mge::simd_nn {

// One row of a step. Forward: gates and product [G*H], c_prev [H] in; h, c, acts out.
struct CellRow {
  CellKind kind;
  int64_t hidden;
  const float *gates, *product, *c_prev;
  float *h, *c, *acts;
};
// Backward: gh, gc (null: none), dh and dc from the step after, and what forward left; pre [G*H] and dc out.
struct CellGradRow {
  CellKind kind;
  int64_t hidden;
  const float *h, *gh, *dh, *acts, *c, *c_prev, *gc, *g_acts;
  float *dc, *pre;
};

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

namespace body_t = mge::body::HWY_NAMESPACE;
HWY_INLINE VF tanh_v(VF x) { return body_t::tanh(body_t::VF(x)).v; }
HWY_INLINE VF sigmoid_v(VF x) { return body_t::sigmoid(body_t::VF(x)).v; }

// What the row after this one reads and writes: pieces too short for a hardware prefetcher to follow.
HWY_INLINE void next_row(const float* in, const float* out, int64_t at) {
  __builtin_prefetch(in + at);
  __builtin_prefetch(out + at, 1);
}

void cell_row(const CellRow& r) {
  const int64_t n = r.hidden;
  auto pre = [&](int64_t gate, int64_t i, int k)
                 HWY_ATTR { return hn::Add(load_n(r.gates + gate * n + i, k), load_n(r.product + gate * n + i, k)); };
  if (r.kind == CellKind::Tanh)
    return each_vector(n, [&](int64_t i, int k) HWY_ATTR { store_n(tanh_v(pre(0, i, k)), r.h + i, k); });
  if (r.kind == CellKind::Relu)
    return each_vector(n, [&](int64_t i, int k) HWY_ATTR {
      const VF v = pre(0, i, k);  // NaN stays
      store_n(hn::IfThenElse(hn::Le(v, hn::Zero(DF())), hn::Zero(DF()), v), r.h + i, k);
    });
  each_vector(n, [&](int64_t i, int k) HWY_ATTR {
    for (int64_t gate = 4; gate < 8; ++gate) next_row(r.gates, r.acts, gate * n + i);
    const VF in = sigmoid_v(pre(0, i, k)), forget = sigmoid_v(pre(1, i, k)), cell = tanh_v(pre(2, i, k)),
             out = sigmoid_v(pre(3, i, k));
    const VF c = hn::Add(hn::Mul(forget, load_n(r.c_prev + i, k)), hn::Mul(in, cell));
    store_n(in, r.acts + i, k);
    store_n(forget, r.acts + n + i, k);
    store_n(cell, r.acts + 2 * n + i, k);
    store_n(out, r.acts + 3 * n + i, k);
    store_n(c, r.c + i, k);
    store_n(hn::Mul(out, tanh_v(c)), r.h + i, k);
  });
}

void cell_grad_row(const CellGradRow& r) {
  const int64_t n = r.hidden;
  const VF one = set(1.0f);
  each_vector(n, [&](int64_t i, int k) HWY_ATTR {
    const VF gh = hn::Add(load_n(r.gh + i, k), load_n(r.dh + i, k));
    if (r.kind != CellKind::Lstm) {
      const VF h = load_n(r.h + i, k);
      const VF v = r.kind == CellKind::Tanh ? hn::Mul(gh, hn::Sub(one, hn::Mul(h, h)))
                                            : hn::IfThenElseZero(hn::Gt(h, hn::Zero(DF())), gh);
      return store_n(v, r.pre + i, k);
    }
    for (int64_t gate = 4; gate < 8; ++gate) next_row(r.acts, r.pre, gate * n + i);
    auto act = [&](int64_t gate) HWY_ATTR { return load_n(r.acts + gate * n + i, k); };
    auto with_extra = [&](VF v, int64_t gate)
                          HWY_ATTR { return r.g_acts ? hn::Add(v, load_n(r.g_acts + gate * n + i, k)) : v; };
    auto sigmoid_slope = [&](VF y) HWY_ATTR { return hn::Mul(y, hn::Sub(one, y)); };
    const VF in = act(0), forget = act(1), cell = act(2), out = act(3), tc = tanh_v(load_n(r.c + i, k));
    VF gc = hn::Add(load_n(r.gc + i, k), load_n(r.dc + i, k));
    gc = hn::Add(gc, hn::Mul(hn::Mul(gh, out), hn::Sub(one, hn::Mul(tc, tc))));
    store_n(hn::Mul(with_extra(hn::Mul(gc, cell), 0), sigmoid_slope(in)), r.pre + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gc, load_n(r.c_prev + i, k)), 1), sigmoid_slope(forget)), r.pre + n + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gc, in), 2), hn::Sub(one, hn::Mul(cell, cell))), r.pre + 2 * n + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gh, tc), 3), sigmoid_slope(out)), r.pre + 3 * n + i, k);
    store_n(hn::Mul(gc, forget), r.dc + i, k);
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {
namespace {

HWY_EXPORT(cell_row);
HWY_EXPORT(cell_grad_row);

int64_t rows_per_thread(const RecurrenceGeom& g) { return value_grain(2 * g.gates); }

void run_recurrence(const KernelArgs& a) {
  const RecurrenceGeom g = recurrence_geom(a.as<RecurrenceAttrs>(), a.in[0].shape, a.in[1].shape);
  const bool lstm = g.kind == CellKind::Lstm;
  float* packed = simd::scratch(simd::Scratch::Weight, simd::packed_floats(g.gates, g.hidden));
  float* product = simd::scratch(simd::Scratch::Out, g.batch * g.gates);
  simd::sgemm_pack(true, g.gates, g.hidden, a.in[1].data<float>(), g.hidden, packed);
  const int64_t state = g.batch * g.hidden, size = g.batch * g.gates;
  float *hs = a.out[0].data<float>(), *cs = a.out[1].data<float>(), *acts = a.out[2].data<float>();
  for (int64_t k = 0; k < g.steps; ++k) {
    const int64_t t = g.at(k), last = g.before(k);
    const float* h = k == 0 ? a.in[2].data<float>() : hs + last * state;
    const float* c = !lstm ? nullptr : k == 0 ? a.in[3].data<float>() : cs + last * state;
    simd::sgemm_packed(g.batch, g.gates, g.hidden, h, g.hidden, packed, product, g.gates);
    parallel_for(g.batch, rows_per_thread(g), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        CellRow r{g.kind,
                  g.hidden,
                  a.in[0].data<float>() + t * size + b * g.gates,
                  product + b * g.gates,
                  nullptr,
                  hs + t * state + b * g.hidden,
                  nullptr,
                  nullptr};
        if (lstm)
          r.c_prev = c + b * g.hidden, r.c = cs + t * state + b * g.hidden, r.acts = acts + t * size + b * g.gates;
        HWY_DYNAMIC_DISPATCH(cell_row)(r);
      }
    });
  }
}

void run_recurrence_bwd(const KernelArgs& a) {
  const Shape& s = a.in[kHs].shape;
  const RecurrenceGeom g =
      recurrence_geom(a.as<RecurrenceAttrs>(), Shape{s[0], s[1], a.in[kW].shape[0]}, a.in[kW].shape);
  const bool lstm = g.kind == CellKind::Lstm;
  float* packed = simd::scratch(simd::Scratch::Weight, simd::packed_floats(g.hidden, g.gates));
  simd::sgemm_pack(false, g.hidden, g.gates, a.in[kW].data<float>(), g.hidden, packed);
  const int64_t state = g.batch * g.hidden, size = g.batch * g.gates;
  float *pre = a.out[0].data<float>(), *dh = a.out[1].data<float>(), *dc = lstm ? a.out[2].data<float>() : nullptr;
  std::memset(dh, 0, static_cast<size_t>(state) * sizeof(float));
  if (lstm) std::memset(dc, 0, static_cast<size_t>(state) * sizeof(float));
  for (int64_t k = g.steps - 1; k >= 0; --k) {
    const int64_t t = g.at(k), last = g.before(k);
    parallel_for(g.batch, rows_per_thread(g), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        const int64_t at = t * state + b * g.hidden, wide = t * size + b * g.gates;
        CellGradRow r{g.kind,
                      g.hidden,
                      a.in[kHs].data<float>() + at,
                      a.in[kGradHs].data<float>() + at,
                      dh + b * g.hidden,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr,
                      pre + wide};
        if (lstm) {
          r.acts = a.in[kActs].data<float>() + wide, r.c = a.in[kCs].data<float>() + at;
          r.c_prev =
              k == 0 ? a.in[kC0].data<float>() + b * g.hidden : a.in[kCs].data<float>() + last * state + b * g.hidden;
          r.gc = a.in[kGradCs].data<float>() + at, r.dc = dc + b * g.hidden;
          if (a.in.size() > kGradActs) r.g_acts = a.in[kGradActs].data<float>() + wide;
        }
        HWY_DYNAMIC_DISPATCH(cell_grad_row)(r);
      }
    });
    simd::sgemm_packed(g.batch, g.hidden, g.gates, pre + t * size, g.gates, packed, dh, g.hidden);
  }
}

}  // namespace

void register_recurrence(KernelRegistry& r) {
  add(r, "recurrence", "simd_recurrence", run_recurrence);
  add(r, "recurrence_bwd", "simd_recurrence_bwd", run_recurrence_bwd);
}

}  // namespace mge::simd_nn
#endif
