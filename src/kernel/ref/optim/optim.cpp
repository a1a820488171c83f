#include <cmath>

#include "kernel/optim_step.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"

namespace mge {
namespace {

struct Sgd {
  static constexpr StepAlias alias = kSgdAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    T wd = static_cast<T>(step_attrs<SgdAttrs>(a).weight_decay), lr = static_cast<T>(ref::read_scalar(a.in[2]));
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>();
    T* out = a.out[0].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T d = wd != 0 ? g[i] + wd * w[i] : g[i];
      out[i] = w[i] - lr * d;
    }
  }
};

struct SgdMomentum {
  static constexpr StepAlias alias = kSgdMomentumAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto at = step_attrs<SgdMomentumAttrs>(a);
    T wd = static_cast<T>(at.weight_decay), mu = static_cast<T>(at.momentum),
      lr = static_cast<T>(ref::read_scalar(a.in[2]));
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>(), *m = a.in[3].data<T>();
    T *w_new = a.out[0].data<T>(), *m_new = a.out[1].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T d = wd != 0 ? g[i] + wd * w[i] : g[i];
      T v = mu * m[i] + d;
      w_new[i] = w[i] - lr * (at.nesterov ? d + mu * v : v);
      m_new[i] = v;
    }
  }
};

struct Adam {
  static constexpr StepAlias alias = kAdamAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto at = step_attrs<AdamAttrs>(a);
    AdamScalars<T> s(at, ref::read_scalar(a.in[4]), ref::read_scalar(a.in[5]));
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>(), *m = a.in[2].data<T>(), *v = a.in[3].data<T>();
    T *w_new = a.out[0].data<T>(), *m_new = a.out[1].data<T>(), *v_new = a.out[2].data<T>();
    bool l2 = s.wd != 0 && !at.decoupled, decay = s.wd != 0 && at.decoupled;
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T d = l2 ? g[i] + s.wd * w[i] : g[i];
      T mi = s.b1 * m[i] + s.one_b1 * d;
      T vi = s.b2 * v[i] + s.one_b2 * (d * d);
      T delta = (mi * s.scale1) / (std::sqrt(vi * s.scale2) + s.eps);
      if (decay) delta = delta + s.wd * w[i];
      w_new[i] = w[i] - s.lr * delta;
      m_new[i] = mi;
      v_new[i] = vi;
    }
  }
};

struct Adagrad {
  static constexpr StepAlias alias = kAdagradAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto at = step_attrs<AdagradAttrs>(a);
    T rate = adagrad_rate<T>(at, ref::read_scalar(a.in[3]), ref::read_scalar(a.in[4]));
    T wd = static_cast<T>(at.weight_decay), eps = static_cast<T>(at.eps);
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>(), *s = a.in[2].data<T>();
    T *w_new = a.out[0].data<T>(), *s_new = a.out[1].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T d = wd != 0 ? g[i] + wd * w[i] : g[i];
      T si = s[i] + d * d;
      w_new[i] = w[i] - rate * d / std::sqrt(si + eps);
      s_new[i] = si;
    }
  }
};

struct Adadelta {
  static constexpr StepAlias alias = kAdadeltaAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto at = step_attrs<AdadeltaAttrs>(a);
    T lr = static_cast<T>(ref::read_scalar(a.in[4])), wd = static_cast<T>(at.weight_decay),
      eps = static_cast<T>(at.eps), rho = static_cast<T>(at.rho), one_rho = static_cast<T>(1 - at.rho);
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>(), *s = a.in[2].data<T>(), *d = a.in[3].data<T>();
    T *w_new = a.out[0].data<T>(), *s_new = a.out[1].data<T>(), *d_new = a.out[2].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T gi = wd != 0 ? g[i] + wd * w[i] : g[i];
      T si = rho * s[i] + one_rho * (gi * gi);
      T delta = std::sqrt(d[i] + eps) / std::sqrt(si + eps) * gi;
      w_new[i] = w[i] - lr * delta;
      s_new[i] = si;
      d_new[i] = rho * d[i] + one_rho * (delta * delta);
    }
  }
};

struct Lamb {
  static constexpr StepAlias alias = kLambAlias;
  template <class T>
  static void run(const KernelArgs& a, DType) {
    LambScalars<T> s(step_attrs<LambAttrs>(a), ref::read_scalar(a.in[4]));
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>(), *m = a.in[2].data<T>(), *v = a.in[3].data<T>();
    T *out = a.out[0].data<T>(), *m_new = a.out[1].data<T>(), *v_new = a.out[2].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T mi = s.b1 * m[i] + s.one_b1 * g[i];
      T vi = s.b2 * v[i] + s.one_b2 * (g[i] * g[i]);
      T step = (mi * s.scale1) / (std::sqrt(vi * s.scale2) + s.eps);
      out[i] = s.wd != 0 ? step + s.wd * w[i] : step;
      m_new[i] = mi;
      v_new[i] = vi;
    }
  }
};

template <class K>
void run_step(const KernelArgs& a) {
  if (!step_skipped(a, K::alias)) ref::run_floating<K>(a);
}

const char* refuse_step(const KernelArgs& a) {
  KernelArgs required = a;
  required.in = step_inputs(a);
  return ref::refuse_not_floating_step(required);
}

template <class K>
MGE_INLINED inline void add(KernelRegistry& r, OpName op, const char* name) {
  r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_step, .run = run_step<K>, .alias = K::alias});
}

}  // namespace

void register_ref_optim(KernelRegistry& r) {
  add<Sgd>(r, "sgd_update", "ref_sgd_update");
  add<SgdMomentum>(r, "sgd_momentum_update", "ref_sgd_momentum_update");
  add<Adam>(r, "adam_update", "ref_adam_update");
  add<Adagrad>(r, "adagrad_update", "ref_adagrad_update");
  add<Adadelta>(r, "adadelta_update", "ref_adadelta_update");
  add<Lamb>(r, "lamb_direction", "ref_lamb_direction");
}

}  // namespace mge
