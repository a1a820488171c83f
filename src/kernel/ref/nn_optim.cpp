#include <array>
#include <cmath>

#include "kernel/ref/nn_ref.h"
#include "op/optim.h"

namespace mge {
namespace {

struct Sgd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    T wd = static_cast<T>(a.as<SgdAttrs>().weight_decay), lr = static_cast<T>(ref::read_scalar(a.in[2]));
    const T *w = a.in[0].data<T>(), *g = a.in[1].data<T>();
    T* out = a.out[0].data<T>();
    for (int64_t i = 0; i < a.out[0].numel(); ++i) {
      T d = wd != 0 ? g[i] + wd * w[i] : g[i];
      out[i] = w[i] - lr * d;
    }
  }
};

struct SgdMomentum {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<SgdMomentumAttrs>();
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
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<AdamAttrs>();
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

}  // namespace

void register_ref_optim(KernelRegistry& r) {
  auto add = [&](const char* op, const char* name, void (*run)(const KernelArgs&), std::array<int8_t, 4> alias) {
    r.add(op, KernelTier::Ref,
          Kernel{.name = name, .refuse = ref::refuse_not_floating_step, .run = run, .alias = alias});
  };
  add("sgd_update", "ref_sgd_update", ref::run_floating<Sgd>, {0, -1, -1, -1});
  add("sgd_momentum_update", "ref_sgd_momentum_update", ref::run_floating<SgdMomentum>, {0, 3, -1, -1});
  add("adam_update", "ref_adam_update", ref::run_floating<Adam>, {0, 2, 3, -1});
}

}  // namespace mge
