// Optimizer steps, one pass over memory. Every step is rounded on its own, so the bits are those of ref.
#include "base/parallel.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"
#include "op/optim.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/nn_optim.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

// f(i, lanes) over all elements, in parallel; outputs may be the inputs.
template <class F>
void each_element(const KernelArgs& a, F f) {
  parallel_for(a.out[0].numel(), 8192,
               [&](int64_t b, int64_t e) { each_vector(e - b, [&](int64_t i, int k) { f(b + i, k); }); });
}

void sgd_update(const KernelArgs& a) {
  float wd = static_cast<float>(a.as<SgdAttrs>().weight_decay);
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
  const auto& at = a.as<SgdMomentumAttrs>();
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
  const auto& at = a.as<AdamAttrs>();
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

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

HWY_EXPORT(sgd_update);
HWY_EXPORT(sgd_momentum_update);
HWY_EXPORT(adam_update);

void register_optim(KernelRegistry& r) {
  add(r, "sgd_update", "simd_sgd_update",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(sgd_update)
        (a);
      },
      {.flags = kInPlace0});
  add(r, "sgd_momentum_update", "simd_sgd_momentum_update",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(sgd_momentum_update)
        (a);
      },
      {.alias = {0, 3, -1, -1}});
  add(r, "adam_update", "simd_adam_update",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(adam_update)
        (a);
      },
      {.alias = {0, 2, 3, -1}});
}

}  // namespace mge::simd_nn
#endif
