#include "op/optim/optim.h"

#include "base/small_vec.h"
#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

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
    const DType t = c.dtype(hyper);
    MGE_CHECK(t == DType::F32 || t == DType::F64, Type, "{}: hyper must be float32 or float64; got {}. Cast it first.",
              c.op->name, c.x(hyper).str());
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

// A one-element input as a number of dtype `t`.
Val number(const Val& x, DType t) { return cast(reshape(x, Shape{}), t); }

// The numbers of a step, in the order of the attributes: from the input `hyper` when it is there.
class Numbers {
 public:
  Numbers(std::span<const Val> in, size_t required, std::initializer_list<double> attrs)
      : like_(in[0]), hyper_(in.size() > required ? in[required] : Val{}), attrs_(attrs) {}
  Val get(size_t i, DType t) const {
    if (!hyper_) return like_.em->constant(attrs_[i], t, like_);
    const auto at = static_cast<int64_t>(i);
    return number(like_.em->emit1("slice", {hyper_}, make_attrs(SliceAttrs{{0}, {at}, {at + 1}, {1}})), t);
  }

 private:
  const Val& like_;
  Val hyper_;
  SmallVec<double, 4> attrs_;
};

// In w's dtype; and as it was where the input `skip` says so. `old[i]` is the input that output i replaces.
void finish(std::span<const Val> in, size_t required, std::initializer_list<size_t> old, std::span<Val> out) {
  for (Val& v : out) v = cast(v, in[0].dtype());
  if (in.size() <= required + 1) return;
  const Val skip = reshape(in[required + 1], Shape{});
  for (size_t i = 0; i < out.size(); ++i) out[i] = select(skip, in[old.begin()[i]], out[i]);
}

void decompose_sgd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Numbers n(in, 3, {attrs_as<SgdAttrs>(attrs).weight_decay});
  Val w = wide(in[0]);
  out[0] = w - number(in[2], w.dtype()) * (wide(in[1]) + w * n.get(0, w.dtype()));
  finish(in, 3, {0}, out);
}

void decompose_sgd_momentum(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<SgdMomentumAttrs>(attrs);
  const Numbers n(in, 4, {at.momentum, at.weight_decay});
  Val w = wide(in[0]), momentum = n.get(0, w.dtype()), d = wide(in[1]) + w * n.get(1, w.dtype());
  Val m = wide(in[3]) * momentum + d;
  out[0] = w - number(in[2], w.dtype()) * (at.nesterov ? d + m * momentum : m);
  out[1] = m;
  finish(in, 4, {0, 3}, out);
}

// The running means of Adam and LAMB, and mean / (sqrt(square) + eps) with both freed of their bias at step t. Numbers:
// beta1, beta2, eps.
Val moment_step(const Numbers& n, bool correct, const Val& d, const Val& t, Val* m, Val* v) {
  auto running = [&](size_t beta, const Val& old, const Val& now) {
    return old * n.get(beta, d.dtype()) + now * cast(1.0 - n.get(beta, DType::F64), d.dtype());
  };
  *m = running(0, *m, d);
  *v = running(1, *v, d * d);
  auto scale = [&](size_t beta) {
    return cast(1.0 / (1.0 - binary("pow", n.get(beta, DType::F64), number(t, DType::F64))), d.dtype());
  };
  Val mean = correct ? *m * scale(0) : *m, square = correct ? *v * scale(1) : *v;
  return mean / (unary("sqrt", square) + n.get(2, d.dtype()));
}

void decompose_adam(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdamAttrs>(attrs);
  const Numbers n(in, 6, {at.beta1, at.beta2, at.eps, at.weight_decay});
  Val w = wide(in[0]), g = wide(in[1]), m = wide(in[2]), v = wide(in[3]), decay = w * n.get(3, w.dtype());
  Val step = moment_step(n, true, at.decoupled ? g : g + decay, in[5], &m, &v);
  out[0] = w - number(in[4], w.dtype()) * (at.decoupled ? step + decay : step);
  out[1] = m, out[2] = v;
  finish(in, 6, {0, 2, 3}, out);
}

void decompose_lamb(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<LambAttrs>(attrs);
  const Numbers n(in, 5, {at.beta1, at.beta2, at.eps, at.weight_decay});
  Val w = wide(in[0]), m = wide(in[2]), v = wide(in[3]);
  out[0] = moment_step(n, at.bias_correction, wide(in[1]), in[4], &m, &v) + w * n.get(3, w.dtype());
  out[1] = m, out[2] = v;
  finish(in, 5, {1, 2, 3}, out);
}

void decompose_adagrad(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdagradAttrs>(attrs);
  const Numbers n(in, 5, {at.lr_decay, at.eps, at.weight_decay});
  Val w = wide(in[0]), d = wide(in[1]) + w * n.get(2, w.dtype()), s = wide(in[2]) + d * d;
  Val rate = number(in[3], DType::F64) / ((number(in[4], DType::F64) - 1.0) * n.get(0, DType::F64) + 1.0);
  out[0] = w - cast(rate, w.dtype()) * d / unary("sqrt", s + n.get(1, w.dtype()));
  out[1] = s;
  finish(in, 5, {0, 2}, out);
}

void decompose_adadelta(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<AdadeltaAttrs>(attrs);
  const Numbers n(in, 5, {at.rho, at.eps, at.weight_decay});
  Val w = wide(in[0]), g = wide(in[1]) + w * n.get(2, w.dtype()), d = wide(in[3]), eps = n.get(1, w.dtype());
  Val rho = n.get(0, w.dtype()), rest = cast(1.0 - n.get(0, DType::F64), w.dtype());
  Val s = wide(in[2]) * rho + (g * g) * rest;
  Val delta = unary("sqrt", d + eps) / unary("sqrt", s + eps) * g;
  out[0] = w - number(in[4], w.dtype()) * delta;
  out[1] = s;
  out[2] = d * rho + (delta * delta) * rest;
  finish(in, 5, {0, 2, 3}, out);
}

}  // namespace

void register_optim(OpRegistry& r) {
  r.op("sgd_update")
      .attrs<SgdAttrs>()
      .in("w", "g", "lr")
      .opt("hyper", "skip")
      .out("w_new")
      .infer(infer_sgd)
      .decompose(decompose_sgd)
      .traits(kNoGrad)
      .doc("g += weight_decay*w; w - lr*g. A parameter update is not differentiated.");
  r.op("sgd_momentum_update")
      .attrs<SgdMomentumAttrs>()
      .in("w", "g", "lr", "m")
      .opt("hyper", "skip")
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
      .opt("hyper", "skip")
      .out("w_new", "m_new", "v_new")
      .infer(infer_adam)
      .decompose(decompose_adam)
      .traits(kNoGrad)
      .doc("Adam, or AdamW when decoupled; t counts steps from 1. A parameter update is not differentiated.");
  r.op("adagrad_update")
      .attrs<AdagradAttrs>()
      .in("w", "g", "s", "lr", "t")
      .opt("hyper", "skip")
      .out("w_new", "s_new")
      .infer(infer_adagrad)
      .decompose(decompose_adagrad)
      .traits(kNoGrad)
      .doc("s += g^2; w - lr / (1 + (t-1)*lr_decay) * g / sqrt(s + eps). A parameter update is not differentiated.");
  r.op("adadelta_update")
      .attrs<AdadeltaAttrs>()
      .in("w", "g", "s", "d", "lr")
      .opt("hyper", "skip")
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
      .opt("hyper", "skip")
      .out("direction", "m_new", "v_new")
      .infer(infer_lamb)
      .decompose(decompose_lamb)
      .traits(kNoGrad)
      .doc("Adam's step with weight_decay*w added, before LAMB scales it. A parameter update is not differentiated.");
}

}  // namespace mge
