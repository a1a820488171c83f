#include "op/rng.h"

#include "op/nn.h"

namespace mge {
namespace {

void check_state(const InferCtx& c, size_t i) {
  nn::check_dtype(c, i, DType::I32);
  nn::check_shape_is(c, i, Shape{4}, "(seed and counter, two words each)");
}
void set_state(Meta& m) {
  m.dtype = DType::I32;
  m.shape = Shape{4};
}
void draw(InferCtx& c, const Ints& shape) {
  check_state(c, 0);
  c.out[0].dtype = DType::F32;
  c.out[0].shape = to_shape(shape);
  set_state(c.out[1]);
}

void infer_uniform(InferCtx& c) {
  const auto& at = attrs_as<RngUniformAttrs>(c.attrs);
  MGE_CHECK(at.lo < at.hi, Value, "rng_uniform: lo must be below hi; got {} and {}.", at.lo, at.hi);
  draw(c, at.shape);
}
void infer_normal(InferCtx& c) {
  const auto& at = attrs_as<RngNormalAttrs>(c.attrs);
  MGE_CHECK(at.std >= 0, Value, "rng_normal: std must not be negative; got {}.", at.std);
  draw(c, at.shape);
}
void infer_dropout(InferCtx& c) {
  double p = attrs_as<DropoutAttrs>(c.attrs).p;
  nn::check_float(c, 0);
  check_state(c, 1);
  MGE_CHECK(p >= 0 && p < 1, Value, "dropout: p must lie in [0,1); got {}.", p);
  for (size_t i : {0, 1}) c.out[i].dtype = c.dtype(0), c.out[i].shape = c.shape(0);
  set_state(c.out[2]);
}

}  // namespace

void register_rng(OpRegistry& r) {
  r.op("rng_uniform")
      .attrs<RngUniformAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_uniform)
      .traits(kRandom | kNoGrad)
      .doc("lo + u*(hi-lo) with u uniform in (0,1]; a draw has nothing to differentiate.");
  r.op("rng_normal")
      .attrs<RngNormalAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_normal)
      .traits(kRandom | kNoGrad)
      .doc("mean + std*z, z normal by Box-Muller; a draw has nothing to differentiate.");
  r.op("dropout")
      .attrs<DropoutAttrs>()
      .in("x", "state")
      .out("y", "mask", "new_state")
      .infer(infer_dropout)
      .traits(kRandom)
      .doc("y = x * mask; mask is 0 with probability p and 1/(1-p) otherwise.");
}

}  // namespace mge
