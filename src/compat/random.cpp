// Random numbers. The state of the generator is the last input; the state after the draw is the last output.
#include "op/rng/rng.h"

#include "compat/emit.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

struct Rng {
  uint64_t seed = 0, handle = 0;
  static constexpr auto fields() { return field_list("seed", &Rng::seed, "handle", &Rng::handle); }
};
struct UniformRng {
  uint64_t seed = 0;
  TypeParam dtype{DType::F32, {}};
  uint64_t handle = 0;
  static constexpr auto fields() {
    return field_list("seed", &UniformRng::seed, "dtype", &UniformRng::dtype, "handle", &UniformRng::handle);
  }
};
struct GaussianRng {
  uint64_t seed = 0;
  double mean = 0, std = 1;
  TypeParam dtype{DType::F32, {}};
  uint64_t handle = 0;
  static constexpr auto fields() {
    using P = GaussianRng;
    return field_list("seed", &P::seed, "mean", &P::mean, "std", &P::std, "dtype", &P::dtype, "handle", &P::handle);
  }
};
struct MultinomialRng {
  uint64_t seed = 0;
  int64_t num_samples = 1;
  bool replacement = false;
  uint64_t handle = 0;
  static constexpr auto fields() {
    using P = MultinomialRng;
    return field_list("seed", &P::seed, "num_samples", &P::num_samples, "replacement", &P::replacement, "handle",
                      &P::handle);
  }
};
struct PermutationRng {
  uint64_t seed = 0;
  TypeParam dtype{DType::I32, {}};
  uint64_t handle = 0;
  static constexpr auto fields() {
    return field_list("seed", &PermutationRng::seed, "dtype", &PermutationRng::dtype, "handle",
                      &PermutationRng::handle);
  }
};
struct Dropout {
  double drop_prob = 0;
  uint64_t seed = 0, handle = 0;
  static constexpr auto fields() {
    return field_list("drop_prob", &Dropout::drop_prob, "seed", &Dropout::seed, "handle", &Dropout::handle);
  }
};

void uniform(Emitter& em, const UniformRng& p, In in, Out& out) {
  const Ints shape = known_ints("UniformRNG", "the shape", in[0]);
  out = emit_all(em, "rng_uniform", {&in.back(), 1}, make_attrs(RngUniformAttrs{shape, 0, 1}));
  out[0] = converted(out[0], p.dtype);
}
void gaussian(Emitter& em, const GaussianRng& p, In in, Out& out) {
  const Ints shape = known_ints("GaussianRNG", "the shape", in[0]);
  out = emit_all(em, "rng_normal", {&in.back(), 1}, make_attrs(RngNormalAttrs{shape, p.mean, p.std}));
  out[0] = converted(out[0], p.dtype);
}

/// Parameters in float32 and in the shape of the result.
Out alike(const char* who, In params) {
  Shape s = params[0].shape();
  for (auto& p : params) s = broadcast_shapes(who, s, p.shape());
  Out out;
  for (auto& p : params) out.push_back(broadcast_to(cast(p, DType::F32), s));
  return out;
}
void gamma(Emitter& em, const Rng&, In in, Out& out) {
  Out args = alike("GammaRNG", in.subspan(0, 2));
  args.push_back(in[2]);
  out = emit_all(em, "rng_gamma", args);
}
void beta(Emitter& em, const Rng&, In in, Out& out) {
  const Out ab = alike("BetaRNG", in.subspan(0, 2));
  const Val one = emit("fill_like", {ab[0]}, ValueAttrs{1});
  const Val first[] = {ab[0], one, in[2]};
  const Out x = emit_all(em, "rng_gamma", first);
  const Val second[] = {ab[1], one, x[1]};
  const Out y = emit_all(em, "rng_gamma", second);
  out = {x[0] / (x[0] + y[0]), y[1]};
}
void poisson(Emitter& em, const Rng&, In in, Out& out) {
  const Val args[] = {cast(in[0], DType::F32), in[1]};
  out = emit_all(em, "rng_poisson", args);
}
void exponential(Emitter& em, const Rng&, In in, Out& out) {
  out = emit_all(em, "rng_uniform", {&in[1], 1}, make_attrs(RngUniformAttrs{to_ints(in[0].shape()), 0, 1}));
  out[0] = -unary("log", out[0]) / in[0];
}

void multinomial(Emitter& em, const MultinomialRng& p, In in, Out& out) {
  const Val &x = in[0], &state = in[1];
  const Shape s = x.shape();
  MGE_CHECK((s.rank == 1 || s.rank == 2) && is_float(x.dtype()), Assertion,
            "MultinomialRNG: needs floating-point weights (C,) or (N, C); got {}.", x.meta().str());
  const int64_t classes = s.back(), n = p.num_samples;
  MGE_CHECK(classes > 0 && n > 0 && (p.replacement || n <= classes), Assertion,
            "MultinomialRNG: {} samples of {} classes{}.", n, classes,
            p.replacement ? " cannot be drawn" : " need replacement=True, and at least one of each");
  const Val rows[] = {shaped(cast(x, DType::F32), {-1, classes}), state};
  const Val y = emit_all(em, "rng_multinomial", rows, make_attrs(MultinomialAttrs{n, p.replacement}))[0];
  // The state moves on by itself: bad weights fail the draw, not every draw after it.
  const int64_t used = rows[0].shape()[0] * (p.replacement ? n : classes);
  out = {s.rank == 2 ? y : shaped(y, {-1}), emit("rng_skip", {state}, SkipAttrs{4 * used})};
}

void permutation(Emitter& em, const PermutationRng& p, In in, Out& out) {
  const int64_t n = known_int("PermutationRNG", "the number of elements", in[0]);
  MGE_CHECK(n >= 0, Assertion, "PermutationRNG: the number of elements must be at least 0; got {}.", n);
  out = emit_all(em, "rng_permutation", {&in[1], 1}, make_attrs(PermutationAttrs{n}));
  out[0] = converted(out[0], p.dtype);
}
void shuffle(Emitter& em, const Rng&, In in, Out& out) {
  const Shape s = in[0].shape();
  MGE_CHECK(s.rank > 0, Value, "ShuffleRNG: a scalar cannot be shuffled.");
  const Out order = emit_all(em, "rng_permutation", {&in[1], 1}, make_attrs(PermutationAttrs{s[0]}));
  out = {take(in[0], order[0], 0), order[0], order[1]};
}
void dropout(Emitter& em, const Dropout& p, In in, Out& out) {
  out = emit_all(em, "dropout", in, make_attrs(DropoutAttrs{p.drop_prob}));
}

}  // namespace

void add_random(Table& t) {
  const auto g = Effect::Generator;
  t.add<UniformRng, uniform>("UniformRNG", {1, 1}, "UniformRNGV1@1", g);
  t.add<GaussianRng, gaussian>("GaussianRNG", {1, 1}, "GaussianRNGV1@1", g);
  t.add<Rng, gamma>("GammaRNG", {2, 2}, "GammaRNG@1", g);
  t.add<Rng, beta>("BetaRNG", {2, 2}, "BetaRNG@1", g);
  t.add<Rng, poisson>("PoissonRNG", {1, 1}, "PoissonRNG@1", g);
  t.add<Rng, exponential>("ExponentialRNG", {1, 1}, "ExponentialRNG@1", g);
  t.add<MultinomialRng, multinomial>("MultinomialRNG", {1, 1}, "MultinomialRNG@1", g);
  t.add<PermutationRng, permutation>("PermutationRNG", {1, 1}, "PermutationRNG@1", g);
  t.add<Rng, shuffle>("ShuffleRNG", {1, 1}, "ShuffleRNG@1", g);
  t.add<Dropout, dropout>("Dropout", {1, 1}, "Dropout@1", g);
}

}  // namespace mge::compat
