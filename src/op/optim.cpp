#include "op/optim.h"

#include "op/nn.h"

namespace mge {
namespace {

void check_like_w(const InferCtx& c, size_t i) {
  nn::check_dtype(c, i, c.dtype(0));
  nn::check_shape_is(c, i, c.shape(0), "(that of w)");
}
void check_scalar(const InferCtx& c, size_t i) {
  nn::check_float(c, i);
  MGE_CHECK(c.shape(i).numel() == 1, Value, "{}: {} must hold one value; got {}.", c.op->name, nn::input_name(c, i),
            c.x(i).str());
}
void like_w(InferCtx& c) {
  for (Meta& m : c.out) m.dtype = c.dtype(0), m.shape = c.shape(0);
}
// The optional inputs after the required ones.
void check_hyper(const InferCtx& c, int64_t numbers) {
  const size_t hyper = static_cast<size_t>(c.op->required), skip = hyper + 1;
  if (c.in.size() > hyper) {
    nn::check_float(c, hyper);
    MGE_CHECK(c.shape(hyper).rank == 1 && c.shape(hyper).numel() == numbers, Value,
              "{}: hyper must hold {} numbers, the attributes it stands for; got {}.", c.op->name, numbers,
              c.x(hyper).str());
  }
  if (c.in.size() > skip)
    MGE_CHECK(c.dtype(skip) == DType::Bool && c.shape(skip).numel() == 1, Value, "{}: skip must hold one bool; got {}.",
              c.op->name, c.x(skip).str());
}
void check_decay(const InferCtx& c, double wd) {
  MGE_CHECK(wd >= 0, Value, "{}: weight_decay must not be negative; got {}.", c.op->name, wd);
}

void infer_sgd(InferCtx& c) {
  nn::check_float(c, 0);
  check_like_w(c, 1);
  check_scalar(c, 2);
  check_decay(c, attrs_as<SgdAttrs>(c.attrs).weight_decay);
  check_hyper(c, SgdAttrs::kNumbers);
  like_w(c);
}

void infer_sgd_momentum(InferCtx& c) {
  const auto& at = attrs_as<SgdMomentumAttrs>(c.attrs);
  nn::check_float(c, 0);
  check_like_w(c, 1);
  check_scalar(c, 2);
  check_like_w(c, 3);
  check_decay(c, at.weight_decay);
  MGE_CHECK(at.momentum >= 0, Value, "sgd_momentum_update: momentum must not be negative; got {}.", at.momentum);
  check_hyper(c, SgdMomentumAttrs::kNumbers);
  like_w(c);
}

void check_betas(const InferCtx& c, double beta1, double beta2) {
  bool betas = beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1;
  MGE_CHECK(betas, Value, "{}: betas must lie in [0,1); got {} and {}.", c.op->name, beta1, beta2);
}

void infer_adagrad(InferCtx& c) {
  const auto& at = attrs_as<AdagradAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2}) check_like_w(c, i);
  for (size_t i : {3, 4}) check_scalar(c, i);
  check_decay(c, at.weight_decay);
  MGE_CHECK(at.lr_decay >= 0, Value, "adagrad_update: lr_decay must not be negative; got {}.", at.lr_decay);
  check_hyper(c, AdagradAttrs::kNumbers);
  like_w(c);
}

void infer_adadelta(InferCtx& c) {
  const auto& at = attrs_as<AdadeltaAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  check_scalar(c, 4);
  check_decay(c, at.weight_decay);
  MGE_CHECK(at.rho >= 0 && at.rho <= 1, Value, "adadelta_update: rho must lie in [0,1]; got {}.", at.rho);
  check_hyper(c, AdadeltaAttrs::kNumbers);
  like_w(c);
}

void infer_lamb(InferCtx& c) {
  const auto& at = attrs_as<LambAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  check_scalar(c, 4);
  check_decay(c, at.weight_decay);
  check_betas(c, at.beta1, at.beta2);
  check_hyper(c, LambAttrs::kNumbers);
  like_w(c);
}

void infer_adam(InferCtx& c) {
  const auto& at = attrs_as<AdamAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  for (size_t i : {4, 5}) check_scalar(c, i);
  check_decay(c, at.weight_decay);
  check_betas(c, at.beta1, at.beta2);
  check_hyper(c, AdamAttrs::kNumbers);
  like_w(c);
}

}  // namespace

void register_optim(OpRegistry& r) {
  r.op("sgd_update")
      .attrs<SgdAttrs>()
      .in("w", "g", "lr")
      .opt("hyper", "skip")
      .out("w_new")
      .infer(infer_sgd)
      .traits(kNoGrad)
      .doc("g += weight_decay*w; w - lr*g. A parameter update is not differentiated.");
  r.op("sgd_momentum_update")
      .attrs<SgdMomentumAttrs>()
      .in("w", "g", "lr", "m")
      .opt("hyper", "skip")
      .out("w_new", "m_new")
      .infer(infer_sgd_momentum)
      .traits(kNoGrad)
      .doc(
          "g += weight_decay*w; m = momentum*m + g; d = nesterov ? g + momentum*m : m; w - lr*d. "
          "A parameter update is not differentiated.");
  r.op("adam_update")
      .attrs<AdamAttrs>()
      .in("w", "g", "m", "v", "lr", "t")
      .opt("hyper", "skip")
      .out("w_new", "m_new", "v_new")
      .infer(infer_adam)
      .traits(kNoGrad)
      .doc("Adam, or AdamW when decoupled; t counts steps from 1. A parameter update is not differentiated.");
  r.op("adagrad_update")
      .attrs<AdagradAttrs>()
      .in("w", "g", "s", "lr", "t")
      .opt("hyper", "skip")
      .out("w_new", "s_new")
      .infer(infer_adagrad)
      .traits(kNoGrad)
      .doc("s += g^2; w - lr / (1 + (t-1)*lr_decay) * g / sqrt(s + eps). A parameter update is not differentiated.");
  r.op("adadelta_update")
      .attrs<AdadeltaAttrs>()
      .in("w", "g", "s", "d", "lr")
      .opt("hyper", "skip")
      .out("w_new", "s_new", "d_new")
      .infer(infer_adadelta)
      .traits(kNoGrad)
      .doc(
          "s = rho*s + (1-rho)*g^2; delta = sqrt(d + eps) / sqrt(s + eps) * g; d = rho*d + (1-rho)*delta^2; "
          "w - lr*delta. A parameter update is not differentiated.");
  r.op("lamb_direction")
      .attrs<LambAttrs>()
      .in("w", "g", "m", "v", "t")
      .opt("hyper", "skip")
      .out("direction", "m_new", "v_new")
      .infer(infer_lamb)
      .traits(kNoGrad)
      .doc("Adam's step with weight_decay*w added, before LAMB scales it. A parameter update is not differentiated.");
}

}  // namespace mge
