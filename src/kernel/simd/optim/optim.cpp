// Optimizer steps, one pass over memory. Every step is rounded on its own, so the bits are those of ref.
#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/optim_step.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/optim/optim.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

// f(i, lanes) over all elements, in parallel; outputs may be the inputs.
template <class F>
void each_element(const KernelArgs& a, F f) {
  parallel_for(a.out[0].numel(), value_grain(2),
               [&](int64_t b, int64_t e) { each_vector(e - b, [&](int64_t i, int k) { f(b + i, k); }); });
}

void sgd_update(const KernelArgs& a) {
  float wd = static_cast<float>(step_attrs<SgdAttrs>(a).weight_decay);
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>();
  float* out = a.out[0].data<float>();
  VF lr = set(*a.in[2].data<float>()), decay = set(wd);
  each_element(a, [&](int64_t i, int k) {
    VF wi = load_n(w + i, k), d = load_n(g + i, k);
    if (wd != 0) d = hn::Add(d, hn::Mul(decay, wi));
    store_n(hn::Sub(wi, hn::Mul(lr, d)), out + i, k);
  });
}

void sgd_momentum_update(const KernelArgs& a) {
  const auto at = step_attrs<SgdMomentumAttrs>(a);
  float wd = static_cast<float>(at.weight_decay);
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>(), *m = a.in[3].data<float>();
  float *w_new = a.out[0].data<float>(), *m_new = a.out[1].data<float>();
  VF lr = set(*a.in[2].data<float>()), decay = set(wd), mu = set(static_cast<float>(at.momentum));
  each_element(a, [&](int64_t i, int k) {
    VF wi = load_n(w + i, k), d = load_n(g + i, k);
    if (wd != 0) d = hn::Add(d, hn::Mul(decay, wi));
    VF v = hn::Add(hn::Mul(mu, load_n(m + i, k)), d);
    VF step = at.nesterov ? hn::Add(d, hn::Mul(mu, v)) : v;
    store_n(hn::Sub(wi, hn::Mul(lr, step)), w_new + i, k);
    store_n(v, m_new + i, k);
  });
}

void adam_update(const KernelArgs& a) {
  const auto at = step_attrs<AdamAttrs>(a);
  AdamScalars<float> s(at, static_cast<double>(*a.in[4].data<float>()), static_cast<double>(*a.in[5].data<float>()));
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>(), *m = a.in[2].data<float>(),
              *v = a.in[3].data<float>();
  float *w_new = a.out[0].data<float>(), *m_new = a.out[1].data<float>(), *v_new = a.out[2].data<float>();
  bool l2 = s.wd != 0 && !at.decoupled, decay = s.wd != 0 && at.decoupled;
  each_element(a, [&](int64_t i, int k) {
    VF wi = load_n(w + i, k), d = load_n(g + i, k);
    if (l2) d = hn::Add(d, hn::Mul(set(s.wd), wi));
    VF mi = hn::Add(hn::Mul(set(s.b1), load_n(m + i, k)), hn::Mul(set(s.one_b1), d));
    VF vi = hn::Add(hn::Mul(set(s.b2), load_n(v + i, k)), hn::Mul(set(s.one_b2), hn::Mul(d, d)));
    VF delta = hn::Div(hn::Mul(mi, set(s.scale1)), hn::Add(hn::Sqrt(hn::Mul(vi, set(s.scale2))), set(s.eps)));
    if (decay) delta = hn::Add(delta, hn::Mul(set(s.wd), wi));
    store_n(hn::Sub(wi, hn::Mul(set(s.lr), delta)), w_new + i, k);
    store_n(mi, m_new + i, k);
    store_n(vi, v_new + i, k);
  });
}

void adagrad_update(const KernelArgs& a) {
  const auto at = step_attrs<AdagradAttrs>(a);
  float wd = static_cast<float>(at.weight_decay);
  VF rate = set(adagrad_rate<float>(at, static_cast<double>(*a.in[3].data<float>()),
                                    static_cast<double>(*a.in[4].data<float>()))),
     decay = set(wd), eps = set(static_cast<float>(at.eps));
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>(), *s = a.in[2].data<float>();
  float *w_new = a.out[0].data<float>(), *s_new = a.out[1].data<float>();
  each_element(a, [&](int64_t i, int k) {
    VF wi = load_n(w + i, k), d = load_n(g + i, k);
    if (wd != 0) d = hn::Add(d, hn::Mul(decay, wi));
    VF si = hn::Add(load_n(s + i, k), hn::Mul(d, d));
    store_n(hn::Sub(wi, hn::Div(hn::Mul(rate, d), hn::Sqrt(hn::Add(si, eps)))), w_new + i, k);
    store_n(si, s_new + i, k);
  });
}

void adadelta_update(const KernelArgs& a) {
  const auto at = step_attrs<AdadeltaAttrs>(a);
  float wd = static_cast<float>(at.weight_decay);
  VF lr = set(*a.in[4].data<float>()), decay = set(wd), eps = set(static_cast<float>(at.eps)),
     rho = set(static_cast<float>(at.rho)), one_rho = set(static_cast<float>(1 - at.rho));
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>(), *s = a.in[2].data<float>(),
              *d = a.in[3].data<float>();
  float *w_new = a.out[0].data<float>(), *s_new = a.out[1].data<float>(), *d_new = a.out[2].data<float>();
  each_element(a, [&](int64_t i, int k) {
    VF wi = load_n(w + i, k), gi = load_n(g + i, k), di = load_n(d + i, k);
    if (wd != 0) gi = hn::Add(gi, hn::Mul(decay, wi));
    VF si = hn::Add(hn::Mul(rho, load_n(s + i, k)), hn::Mul(one_rho, hn::Mul(gi, gi)));
    VF delta = hn::Mul(hn::Div(hn::Sqrt(hn::Add(di, eps)), hn::Sqrt(hn::Add(si, eps))), gi);
    store_n(hn::Sub(wi, hn::Mul(lr, delta)), w_new + i, k);
    store_n(si, s_new + i, k);
    store_n(hn::Add(hn::Mul(rho, di), hn::Mul(one_rho, hn::Mul(delta, delta))), d_new + i, k);
  });
}

void lamb_direction(const KernelArgs& a) {
  LambScalars<float> s(step_attrs<LambAttrs>(a), static_cast<double>(*a.in[4].data<float>()));
  const float *w = a.in[0].data<float>(), *g = a.in[1].data<float>(), *m = a.in[2].data<float>(),
              *v = a.in[3].data<float>();
  float *out = a.out[0].data<float>(), *m_new = a.out[1].data<float>(), *v_new = a.out[2].data<float>();
  each_element(a, [&](int64_t i, int k) {
    VF gi = load_n(g + i, k);
    VF mi = hn::Add(hn::Mul(set(s.b1), load_n(m + i, k)), hn::Mul(set(s.one_b1), gi));
    VF vi = hn::Add(hn::Mul(set(s.b2), load_n(v + i, k)), hn::Mul(set(s.one_b2), hn::Mul(gi, gi)));
    VF step = hn::Div(hn::Mul(mi, set(s.scale1)), hn::Add(hn::Sqrt(hn::Mul(vi, set(s.scale2))), set(s.eps)));
    if (s.wd != 0) step = hn::Add(step, hn::Mul(set(s.wd), load_n(w + i, k)));
    store_n(step, out + i, k);
    store_n(mi, m_new + i, k);
    store_n(vi, v_new + i, k);
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(sgd_update);
HWY_EXPORT(sgd_momentum_update);
HWY_EXPORT(adam_update);
HWY_EXPORT(adagrad_update);
HWY_EXPORT(adadelta_update);
HWY_EXPORT(lamb_direction);

namespace {

const char* refuse_step(const KernelArgs& a) {
  KernelArgs required = a;
  required.in = step_inputs(a);
  return refuse_not_f32(required);
}

}  // namespace

void register_optim(KernelRegistry& r) {
  auto add = [&r](OpName op, const char* name, const StepAlias& alias, void (*run)(const KernelArgs&)) MGE_INLINED {
    r.add(op, KernelTier::Simd, Kernel{.name = name, .refuse = refuse_step, .run = run, .alias = alias});
  };
  add("sgd_update", "simd_sgd_update", kSgdAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kSgdAlias)) HWY_DYNAMIC_DISPATCH(sgd_update)(a);
  });
  add("sgd_momentum_update", "simd_sgd_momentum_update", kSgdMomentumAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kSgdMomentumAlias)) HWY_DYNAMIC_DISPATCH(sgd_momentum_update)(a);
  });
  add("adam_update", "simd_adam_update", kAdamAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kAdamAlias)) HWY_DYNAMIC_DISPATCH(adam_update)(a);
  });
  add("adagrad_update", "simd_adagrad_update", kAdagradAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kAdagradAlias)) HWY_DYNAMIC_DISPATCH(adagrad_update)(a);
  });
  add("adadelta_update", "simd_adadelta_update", kAdadeltaAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kAdadeltaAlias)) HWY_DYNAMIC_DISPATCH(adadelta_update)(a);
  });
  add("lamb_direction", "simd_lamb_direction", kLambAlias, [](const KernelArgs& a) {
    if (!step_skipped(a, kLambAlias)) HWY_DYNAMIC_DISPATCH(lamb_direction)(a);
  });
}

}  // namespace mge::simd_nn
#endif
