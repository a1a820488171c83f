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
void check_decay(const InferCtx& c, double wd) {
  MGE_CHECK(wd >= 0, Value, "{}: weight_decay must not be negative; got {}.", c.op->name, wd);
}

void infer_sgd(InferCtx& c) {
  nn::check_float(c, 0);
  check_like_w(c, 1);
  check_scalar(c, 2);
  check_decay(c, attrs_as<SgdAttrs>(c.attrs).weight_decay);
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
  like_w(c);
}

void infer_adam(InferCtx& c) {
  const auto& at = attrs_as<AdamAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  for (size_t i : {4, 5}) check_scalar(c, i);
  check_decay(c, at.weight_decay);
  bool betas = at.beta1 >= 0 && at.beta1 < 1 && at.beta2 >= 0 && at.beta2 < 1;
  MGE_CHECK(betas, Value, "adam_update: betas must lie in [0,1); got {} and {}.", at.beta1, at.beta2);
  like_w(c);
}

}  // namespace

void register_optim(OpRegistry& r) {
  r.op("sgd_update")
      .attrs<SgdAttrs>()
      .in("w", "g", "lr")
      .out("w_new")
      .infer(infer_sgd)
      .traits(kNoGrad)
      .doc("g += weight_decay*w; w - lr*g. A parameter update is not differentiated.");
  r.op("sgd_momentum_update")
      .attrs<SgdMomentumAttrs>()
      .in("w", "g", "lr", "m")
      .out("w_new", "m_new")
      .infer(infer_sgd_momentum)
      .traits(kNoGrad)
      .doc(
          "g += weight_decay*w; m = momentum*m + g; d = nesterov ? g + momentum*m : m; w - lr*d. "
          "A parameter update is not differentiated.");
  r.op("adam_update")
      .attrs<AdamAttrs>()
      .in("w", "g", "m", "v", "lr", "t")
      .out("w_new", "m_new", "v_new")
      .infer(infer_adam)
      .traits(kNoGrad)
      .doc("Adam, or AdamW when decoupled; t counts steps from 1. A parameter update is not differentiated.");
}

}  // namespace mge
