// Optimizer steps: one pass over memory each. lr (and Adam's step count t, from 1) are one-element tensors, and the
// optional input `hyper` holds the other numbers in the order of the attributes it stands for, so a traced program sees
// changed hyper-parameters. With the optional `skip` (one bool) true the state stays as it is: a conditional step
// without a branch. Every step is rounded; all kernels give the same bits.
#pragma once
#include <cmath>

#include "op/attrs.h"

namespace mge {

struct SgdAttrs {
  double weight_decay = 0;
  static constexpr auto fields() { return field_list("weight_decay", &SgdAttrs::weight_decay); }
  static constexpr int64_t kNumbers = 1;
  void take(const double* hyper) { weight_decay = hyper[0]; }
};

struct SgdMomentumAttrs {
  double momentum = 0.9, weight_decay = 0;
  bool nesterov = false;
  static constexpr auto fields() {
    using A = SgdMomentumAttrs;
    return field_list("momentum", &A::momentum, "weight_decay", &A::weight_decay, "nesterov", &A::nesterov);
  }
  static constexpr int64_t kNumbers = 2;
  void take(const double* hyper) { momentum = hyper[0], weight_decay = hyper[1]; }
};

struct AdamAttrs {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  // AdamW: decay the parameter, not the gradient
  static constexpr auto fields() {
    using A = AdamAttrs;
    return field_list("beta1", &A::beta1, "beta2", &A::beta2, "eps", &A::eps, "weight_decay", &A::weight_decay,
                      "decoupled", &A::decoupled);
  }
  static constexpr int64_t kNumbers = 4;
  void take(const double* hyper) { beta1 = hyper[0], beta2 = hyper[1], eps = hyper[2], weight_decay = hyper[3]; }
};

struct AdagradAttrs {
  double lr_decay = 0, eps = 1e-10, weight_decay = 0;
  static constexpr auto fields() {
    using A = AdagradAttrs;
    return field_list("lr_decay", &A::lr_decay, "eps", &A::eps, "weight_decay", &A::weight_decay);
  }
  static constexpr int64_t kNumbers = 3;
  void take(const double* hyper) { lr_decay = hyper[0], eps = hyper[1], weight_decay = hyper[2]; }
};

struct AdadeltaAttrs {
  double rho = 0.9, eps = 1e-6, weight_decay = 0;
  static constexpr auto fields() {
    using A = AdadeltaAttrs;
    return field_list("rho", &A::rho, "eps", &A::eps, "weight_decay", &A::weight_decay);
  }
  static constexpr int64_t kNumbers = 3;
  void take(const double* hyper) { rho = hyper[0], eps = hyper[1], weight_decay = hyper[2]; }
};

struct LambAttrs {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool bias_correction = true;
  static constexpr auto fields() {
    using A = LambAttrs;
    return field_list("beta1", &A::beta1, "beta2", &A::beta2, "eps", &A::eps, "weight_decay", &A::weight_decay,
                      "bias_correction", &A::bias_correction);
  }
  static constexpr int64_t kNumbers = 4;
  void take(const double* hyper) { beta1 = hyper[0], beta2 = hyper[1], eps = hyper[2], weight_decay = hyper[3]; }
};

/// What one Adam step needs besides the tensors, rounded once from double.
template <class T>
struct AdamScalars {
  T lr, b1, one_b1, b2, one_b2, scale1, scale2, eps, wd;  // scales undo the bias of the running means
  AdamScalars(const AdamAttrs& a, double lr_, double t)
      : lr(static_cast<T>(lr_)),
        b1(static_cast<T>(a.beta1)),
        one_b1(static_cast<T>(1 - a.beta1)),
        b2(static_cast<T>(a.beta2)),
        one_b2(static_cast<T>(1 - a.beta2)),
        scale1(static_cast<T>(1 / (1 - std::pow(a.beta1, t)))),
        scale2(static_cast<T>(1 / (1 - std::pow(a.beta2, t)))),
        eps(static_cast<T>(a.eps)),
        wd(static_cast<T>(a.weight_decay)) {}
};

/// The learning rate of Adagrad's step t, from 1.
template <class T>
T adagrad_rate(const AdagradAttrs& a, double lr, double t) {
  return static_cast<T>(lr / ((t - 1) * a.lr_decay + 1));
}

template <class T>
struct LambScalars {
  T b1, one_b1, b2, one_b2, scale1, scale2, eps, wd;
  LambScalars(const LambAttrs& a, double t)
      : b1(static_cast<T>(a.beta1)),
        one_b1(static_cast<T>(1 - a.beta1)),
        b2(static_cast<T>(a.beta2)),
        one_b2(static_cast<T>(1 - a.beta2)),
        scale1(static_cast<T>(a.bias_correction ? 1 / (1 - std::pow(a.beta1, t)) : 1)),
        scale2(static_cast<T>(a.bias_correction ? 1 / (1 - std::pow(a.beta2, t)) : 1)),
        eps(static_cast<T>(a.eps)),
        wd(static_cast<T>(a.weight_decay)) {}
};

}  // namespace mge
