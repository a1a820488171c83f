#include "op/optim.h"

#include "op/compose.h"
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
  like_w(c);
}

void infer_adadelta(InferCtx& c) {
  const auto& at = attrs_as<AdadeltaAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  check_scalar(c, 4);
  check_decay(c, at.weight_decay);
  MGE_CHECK(at.rho >= 0 && at.rho <= 1, Value, "adadelta_update: rho must lie in [0,1]; got {}.", at.rho);
  like_w(c);
}

void infer_lamb(InferCtx& c) {
  const auto& at = attrs_as<LambAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  check_scalar(c, 4);
  check_decay(c, at.weight_decay);
  check_betas(c, at.beta1, at.beta2);
  like_w(c);
}

void infer_adam(InferCtx& c) {
  const auto& at = attrs_as<AdamAttrs>(c.attrs);
  nn::check_float(c, 0);
  for (size_t i : {1, 2, 3}) check_like_w(c, i);
  for (size_t i : {4, 5}) check_scalar(c, i);
  check_decay(c, at.weight_decay);
  check_betas(c, at.beta1, at.beta2);
  like_w(c);
}

// A one-element input as a number of dtype `t`.
Val number(const Val& x, DType t) { return cast(reshape(x, Shape{}), t); }
Val decayed(const Val& g, const Val& w, double weight_decay) { return weight_decay != 0 ? g + w * weight_decay : g; }
void rounded_to(DType t, std::span<Val> out) {
  for (Val& v : out) v = cast(v, t);
}

void decompose_sgd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val w = wide(in[0]), d = decayed(wide(in[1]), w, attrs_as<SgdAttrs>(attrs).weight_decay);
  out[0] = w - number(in[2], w.dtype()) * d;
  rounded_to(in[0].dtype(), out);
}

void decompose_sgd_momentum(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<SgdMomentumAttrs>(attrs);
  Val w = wide(in[0]), d = decayed(wide(in[1]), w, at.weight_decay), m = wide(in[3]) * at.momentum + d;
  out[0] = w - number(in[2], w.dtype()) * (at.nesterov ? d + m * at.momentum : m);
  out[1] = m;
  rounded_to(in[0].dtype(), out);
}

// The running means of Adam and LAMB, and mean / (sqrt(square) + eps) with both freed of their bias at step t.
template <class A>
Val moment_step(const A& at, bool correct, const Val& d, const Val& t, Val* m, Val* v) {
  *m = *m * at.beta1 + d * (1 - at.beta1);
  *v = *v * at.beta2 + (d * d) * (1 - at.beta2);
  auto scale = [&](double beta) {
    Val steps = number(t, DType::F64);
    return cast(1.0 / (1.0 - binary("pow", scalar_like(steps, beta), steps)), d.dtype());
  };
  Val mean = correct ? *m * scale(at.beta1) : *m, square = correct ? *v * scale(at.beta2) : *v;
  return mean / (unary("sqrt", square) + at.eps);
}

void decompose_adam(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdamAttrs>(attrs);
  Val w = wide(in[0]), g = wide(in[1]), m = wide(in[2]), v = wide(in[3]);
  Val step = moment_step(at, true, at.decoupled ? g : decayed(g, w, at.weight_decay), in[5], &m, &v);
  if (at.decoupled) step = decayed(step, w, at.weight_decay);
  out[0] = w - number(in[4], w.dtype()) * step;
  out[1] = m, out[2] = v;
  rounded_to(in[0].dtype(), out);
}

void decompose_lamb(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<LambAttrs>(attrs);
  Val w = wide(in[0]), m = wide(in[2]), v = wide(in[3]);
  Val step = moment_step(at, at.bias_correction, wide(in[1]), in[4], &m, &v);
  out[0] = decayed(step, w, at.weight_decay);
  out[1] = m, out[2] = v;
  rounded_to(in[0].dtype(), out);
}

void decompose_adagrad(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdagradAttrs>(attrs);
  Val w = wide(in[0]), d = decayed(wide(in[1]), w, at.weight_decay), s = wide(in[2]) + d * d;
  Val rate = number(in[3], DType::F64) / ((number(in[4], DType::F64) - 1.0) * at.lr_decay + 1.0);
  out[0] = w - cast(rate, w.dtype()) * d / unary("sqrt", s + at.eps);
  out[1] = s;
  rounded_to(in[0].dtype(), out);
}

void decompose_adadelta(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdadeltaAttrs>(attrs);
  Val w = wide(in[0]), g = decayed(wide(in[1]), w, at.weight_decay), d = wide(in[3]);
  Val s = wide(in[2]) * at.rho + (g * g) * (1 - at.rho);
  Val delta = unary("sqrt", d + at.eps) / unary("sqrt", s + at.eps) * g;
  out[0] = w - number(in[4], w.dtype()) * delta;
  out[1] = s;
  out[2] = d * at.rho + (delta * delta) * (1 - at.rho);
  rounded_to(in[0].dtype(), out);
}

}  // namespace

void register_optim(OpRegistry& r) {
  r.op("sgd_update")
      .attrs<SgdAttrs>()
      .in("w", "g", "lr")
      .out("w_new")
      .infer(infer_sgd)
      .decompose(decompose_sgd)
      .traits(kNoGrad)
      .doc("g += weight_decay*w; w - lr*g. A parameter update is not differentiated.");
  r.op("sgd_momentum_update")
      .attrs<SgdMomentumAttrs>()
      .in("w", "g", "lr", "m")
      .out("w_new", "m_new")
      .infer(infer_sgd_momentum)
      .decompose(decompose_sgd_momentum)
      .traits(kNoGrad)
      .doc(
          "g += weight_decay*w; m = momentum*m + g; d = nesterov ? g + momentum*m : m; w - lr*d. "
          "A parameter update is not differentiated.");
  r.op("adam_update")
      .attrs<AdamAttrs>()
      .in("w", "g", "m", "v", "lr", "t")
      .out("w_new", "m_new", "v_new")
      .infer(infer_adam)
      .decompose(decompose_adam)
      .traits(kNoGrad)
      .doc("Adam, or AdamW when decoupled; t counts steps from 1. A parameter update is not differentiated.");
  r.op("adagrad_update")
      .attrs<AdagradAttrs>()
      .in("w", "g", "s", "lr", "t")
      .out("w_new", "s_new")
      .infer(infer_adagrad)
      .decompose(decompose_adagrad)
      .traits(kNoGrad)
      .doc("s += g^2; w - lr / (1 + (t-1)*lr_decay) * g / sqrt(s + eps). A parameter update is not differentiated.");
  r.op("adadelta_update")
      .attrs<AdadeltaAttrs>()
      .in("w", "g", "s", "d", "lr")
      .out("w_new", "s_new", "d_new")
      .infer(infer_adadelta)
      .decompose(decompose_adadelta)
      .traits(kNoGrad)
      .doc(
          "s = rho*s + (1-rho)*g^2; delta = sqrt(d + eps) / sqrt(s + eps) * g; d = rho*d + (1-rho)*delta^2; "
          "w - lr*delta. A parameter update is not differentiated.");
  r.op("lamb_direction")
      .attrs<LambAttrs>()
      .in("w", "g", "m", "v", "t")
      .out("direction", "m_new", "v_new")
      .infer(infer_lamb)
      .decompose(decompose_lamb)
      .traits(kNoGrad)
      .doc("Adam's step with weight_decay*w added, before LAMB scales it. A parameter update is not differentiated.");
}

}  // namespace mge
