#include "op/rng/rng.h"
#include "op/in_build.h"

#include "op/nn.h"
#include "op/rng/rng_parts.h"
#include "op/shape/shape_ops.h"

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

void infer_bits(InferCtx& c) {
  draw(c, attrs_as<ShapeAttrs>(c.attrs).shape);
  c.out[0].dtype = DType::I32;
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

// y like the parameters 0..n-1, which have one shape; state after them.
void infer_per_element(InferCtx& c) {
  size_t params = c.n() - 1;
  for (size_t i = 0; i < params; ++i) {
    nn::check_dtype(c, i, DType::F32);
    nn::check_shape_is(c, i, c.shape(0), format("(that of {})", nn::input_name(c, 0)));
  }
  check_state(c, params);
  c.out[0].dtype = DType::F32;
  c.out[0].shape = c.shape(0);
  set_state(c.out[1]);
}
void infer_multinomial(InferCtx& c) {
  const auto& at = attrs_as<MultinomialAttrs>(c.attrs);
  nn::check_dtype(c, 0, DType::F32);
  nn::check_rank(c, 0, 2, 2);
  check_state(c, 1);
  int64_t classes = c.shape(0)[1];
  MGE_CHECK(classes > 0 && at.num_samples > 0, Value,
            "rng_multinomial: needs at least one class and one sample; got weights {}, num_samples {}.",
            c.shape(0).str(), at.num_samples);
  MGE_CHECK(at.replacement || at.num_samples <= classes, Value,
            "rng_multinomial: without replacement at most {} samples can be drawn from {} classes; got {}.", classes,
            classes, at.num_samples);
  c.out[0].dtype = DType::I32;
  c.out[0].shape = Shape{c.shape(0)[0], at.num_samples};
}
void infer_skip(InferCtx& c) {
  check_state(c, 0);
  int64_t n = attrs_as<SkipAttrs>(c.attrs).n;
  MGE_CHECK(n >= 0, Value, "rng_skip: n must not be negative; got {}.", n);
  set_state(c.out[0]);
}
void infer_permutation(InferCtx& c) {
  int64_t n = attrs_as<PermutationAttrs>(c.attrs).n;
  MGE_CHECK(n >= 0 && n < (int64_t{1} << 31), Value, "rng_permutation: n must lie in 0..2^31-1; got {}.", n);
  check_state(c, 0);
  c.out[0].dtype = DType::I32;
  c.out[0].shape = Shape{n};
  set_state(c.out[1]);
}

}  // namespace

void register_rng(OpRegistry& r) {
  r.op("rng_bits")
      .attrs<ShapeAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_bits)
      .traits(kRandom | kNoGrad)
      .doc("The random words themselves, as int32: what the other draws are made from.");
  r.op("rng_uniform")
      .attrs<RngUniformAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_uniform)
      .decompose(decompose_rng_uniform)
      .traits(kRandom | kNoGrad)
      .doc("lo + u*(hi-lo) with u uniform in (0,1]; a draw has nothing to differentiate.");
  r.op("rng_normal")
      .attrs<RngNormalAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_normal)
      .decompose(decompose_rng_normal)
      .traits(kRandom | kNoGrad)
      .doc("mean + std*z, z normal by Box-Muller; a draw has nothing to differentiate.");
  r.op("rng_gamma")
      .in("shape", "scale", "state")
      .out("y", "new_state")
      .infer(infer_per_element)
      .decompose(decompose_rng_gamma)
      .traits(kRandom | kNoGrad)
      .doc("Gamma numbers, one for each shape and scale, by Marsaglia and Tsang; no gradient in the parameters.");
  r.op("rng_poisson")
      .in("lam", "state")
      .out("y", "new_state")
      .infer(infer_per_element)
      .decompose(decompose_rng_poisson)
      .traits(kRandom | kNoGrad)
      .doc("Poisson counts, one for each mean: inversion below 10, Hoermann's PTRS above; no gradient in the mean.");
  r.op("rng_multinomial")
      .attrs<MultinomialAttrs>()
      .in("weights", "state")
      .out("y")
      .refuses(0b1)
      .infer(infer_multinomial)
      .decompose(decompose_rng_multinomial)
      .traits(kRandom | kNoGrad)
      .doc(
          "Class numbers (int32) drawn for each row of weights [N,C], which need not sum to 1. Bad weights fail the "
          "draw, so it gives no new state, which would be lost with it: rng_skip moves on.");
  r.op("rng_skip")
      .attrs<SkipAttrs>()
      .in("state")
      .out("new_state")
      .infer(infer_skip)
      .decompose(decompose_rng_skip)
      .traits(kNoGrad)
      .doc("The state after n random words were drawn.");
  r.op("rng_permutation")
      .attrs<PermutationAttrs>()
      .in("state")
      .out("y", "new_state")
      .infer(infer_permutation)
      .traits(kRandom | kNoGrad)
      .doc("0..n-1 (int32) in random order, by Fisher and Yates.");
  r.op("dropout")
      .attrs<DropoutAttrs>()
      .in("x", "state")
      .out("y", "mask", "new_state")
      .infer(infer_dropout)
      .decompose(decompose_dropout)
      .keeps_format(KeepsFormat::First)
      .traits(kRandom)
      .doc("y = x * mask; mask is 0 with probability p and 1/(1-p) otherwise.");
}

}  // namespace mge
