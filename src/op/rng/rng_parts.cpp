#include "op/rng/rng_parts.h"

#include <cmath>
#include <numbers>

#include "op/compose.h"
#include "op/index/sort.h"
#include "op/reduce/scan.h"
#include "op/rng/rng.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

Val less(const Val& a, const Val& b) { return binary("lt", a, b); }
Val both(const Val& a, const Val& b) { return binary("logical_and", a, b); }
Val either(const Val& a, const Val& b) { return binary("logical_or", a, b); }

Val words(const Val& state, const Shape& s, Val* new_state) {
  static const OpDef& bits = OpRegistry::global().get("rng_bits");
  Val out[2];
  state.em->emit(bits, make_attrs(ShapeAttrs{to_ints(s)}), {&state, 1}, out);
  *new_state = out[1];
  return out[0];
}
// The upper 32 - n bits of a word as a number.
Val upper_bits(const Val& w, int n) {
  Val shifted = binary("right_shift", w, scalar_like(w, n));
  return binary("mod", shifted, scalar_like(shifted, std::exp2(32 - n)));
}
// philox_uniform: (0, 1], 24 bits.
Val uniform24(const Val& w) { return (cast(upper_bits(w, 8), DType::F32) + 1.0) * 0x1p-24; }
// (0, 1), 53 bits of each two words: [.., 2k] -> float64 [.., k].
Val uniform53(const Val& w) {
  Shape pairs = w.shape();
  pairs[pairs.rank - 1] /= 2;
  const int last = pairs.rank;
  pairs.push_back(2);
  Val p = reshape(w, pairs), signed_high = cast(element(p, last, 0), DType::F64);
  Val high = select(less(signed_high, scalar_like(signed_high, 0)), signed_high + 0x1p32, signed_high);
  Val low = cast(upper_bits(element(p, last, 1), 11), DType::F64);
  return (high * 0x1p21 + low + 0.5) * 0x1p-53;
}
// Uniform numbers of each element's own counters: [n, 2 * kRejectionCounters].
Val own_numbers(const Val& state, int64_t n, Val* new_state) {
  return uniform53(words(state, Shape{n, 4 * kRejectionCounters}, new_state));
}
Val box_muller(const Val& u, const Val& v, const char* part) {
  return unary("sqrt", unary("log", u) * -2.0) * unary(part, v * kTwoPi);
}

// Each column of `value` [n,tries] stands for a try: the first that is accepted, else the last that counts, else
// `start`.
Val chosen(const Val& value, const Val& accepted, const Val& counts, Val start) {
  const int64_t tries = value.shape()[1];
  for (int64_t t = 0; t < tries; ++t) start = select(element(counts, 1, t), element(value, 1, t), start);
  for (int64_t t = tries - 1; t >= 0; --t) start = select(element(accepted, 1, t), element(value, 1, t), start);
  return start;
}

// Stirling's series from s + 8 on, brought back by the recurrence of the gamma function; s >= 1.
Val log_gamma(const Val& s) {
  Val product = s, z = s + 8.0;
  for (int i = 1; i < 8; ++i) product = product * (s + static_cast<double>(i));
  Val r = 1.0 / z, r2 = r * r;
  Val series = r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260 - r2 * (1.0 / 1680))));
  return (z - 0.5) * unary("log", z) - z + 0.5 * std::log(kTwoPi) + series - unary("log", product);
}

}  // namespace

void decompose_rng_uniform(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RngUniformAttrs>(attrs);
  out[0] = uniform24(words(in[0], to_shape(at.shape), &out[1])) * (at.hi - at.lo) + at.lo;
}

// Box-Muller: words 0,1 give elements 0,1 and words 2,3 give elements 2,3.
void decompose_rng_normal(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RngNormalAttrs>(attrs);
  const Shape shape = to_shape(at.shape);
  const int64_t n = shape.numel(), pairs = (n + 3) / 4 * 2;
  Val u = cast(uniform24(words(in[0], Shape{pairs, 2}, &out[1])), DType::F64);
  Val u0 = slice_axis(u, 1, 0, 1), u1 = slice_axis(u, 1, 1, 2);
  Val z = reshape(concat({box_muller(u0, u1, "cos"), box_muller(u0, u1, "sin")}, 1), Shape{pairs * 2});
  out[0] = reshape(cast(slice_axis(z, 0, 0, n), DType::F32), shape) * at.std + at.mean;
}

// Marsaglia and Tsang, as the kernel does it: a first number for shapes below 1, then tries of four numbers each.
void decompose_rng_gamma(Emitter&, const AttrsBase*, std::span<const Val> in, std::span<Val> out) {
  const int64_t n = in[0].shape().numel(), tries = (kRejectionCounters - 1) / 2;
  Val given = cast(reshape(in[0], Shape{n}), DType::F64), scale = cast(reshape(in[1], Shape{n}), DType::F64);
  Val one = scalar_like(given, 1), zero = scalar_like(given, 0), small = less(given, one);
  Val u = own_numbers(in[2], n, &out[1]);
  Val boost = select(small, binary("pow", element(u, 1, 0), 1.0 / given), one);
  Val shape = select(small, given + 1.0, given);
  Val numbers = select(reshape(small, Shape{n, 1}), slice_axis(u, 1, 2, 2 + 4 * tries), slice_axis(u, 1, 0, 4 * tries));
  numbers = reshape(numbers, Shape{n, tries, 4});
  Val x = box_muller(element(numbers, 2, 0), element(numbers, 2, 1), "cos");
  Val d = reshape(shape - 1.0 / 3, Shape{n, 1}), c = 1.0 / unary("sqrt", d * 9.0);
  Val t = c * x + 1.0, v = t * t * t, counts = less(zero, t);
  Val bound = x * x * 0.5 + d * (1.0 - v + unary("log", v));
  Val accepted = both(counts, less(unary("log", element(numbers, 2, 2)), bound));
  Val y = reshape(d, Shape{n}) * chosen(v, accepted, counts, broadcast_to(one, Shape{n})) * boost;
  Val none = select(binary("eq", given, zero), zero, scalar_like(given, NAN));
  out[0] = reshape(cast(select(less(zero, given), y, none) * scale, DType::F32), in[0].shape());
}

// Inversion below 10, Hoermann's PTRS above, as the kernel does it.
void decompose_rng_poisson(Emitter& em, const AttrsBase*, std::span<const Val> in, std::span<Val> out) {
  const int64_t n = in[0].shape().numel();
  constexpr int64_t kMost = 64;  // beyond it a mean below 10 leaves less than one part in 2^53
  Val lam = cast(reshape(in[0], Shape{n}), DType::F64), zero = scalar_like(lam, 0);
  Val u = own_numbers(in[1], n, &out[1]), column = reshape(lam, Shape{n, 1});

  Val low = minimum(column, scalar_like(lam, 10));
  Val ratio = low / cast(iota(lam, kMost) + 1.0, DType::F64);
  Val terms = concat({unary("exp", -low), slice_axis(ratio, 1, 0, kMost - 1)}, 1);
  Val term = em.emit1("cumprod", {terms}, make_attrs(ScanAttrs{1, false}));
  Val upto = em.emit1("cumsum", {term}, make_attrs(CumsumAttrs{1, false, false}));
  Val few = cast(reduce(cast(less(upto, slice_axis(u, 1, 0, 1)), DType::I32), "sum", {1}, false), DType::F64);

  Val b = unary("sqrt", column) * 2.53 + 0.931, a = b * 0.02483 - 0.059;
  Val inverse_alpha = 1.1328 / (b - 3.4) + 1.1239, accept = 0.9277 - 3.6224 / (b - 2.0);
  Val pairs = reshape(u, Shape{n, kRejectionCounters, 2});
  Val x = element(pairs, 2, 0) - 0.5, v = element(pairs, 2, 1), us = 0.5 - unary("abs", x);
  Val value = unary("floor", (a * 2.0 / us + b) * x + column + 0.43);
  Val at_once = both(binary("le", scalar_like(us, 0.07), us), binary("le", v, accept));
  Val outside = either(less(value, zero), both(less(us, scalar_like(us, 0.013)), less(us, v)));
  Val counts = unary("logical_not", outside), real = maximum(value, zero);
  Val left = unary("log", v * inverse_alpha / (a / (us * us) + b));
  Val late = both(counts, binary("le", left, value * unary("log", column) - column - log_gamma(real + 1.0)));
  Val many = chosen(value, either(at_once, late), counts, lam);

  Val y = select(less(lam, scalar_like(lam, 10)), few, many);
  y = select(binary("le", zero, lam), y, scalar_like(lam, NAN));
  out[0] = reshape(cast(y, DType::F32), in[0].shape());
}

// Without replacement each class waits an exponential time with its weight as rate and the first to come are drawn;
// with it a number is looked up among the running sums. One counter for each class or draw, as the kernel does it.
void decompose_rng_multinomial(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<MultinomialAttrs>(attrs);
  const int64_t rows = in[0].shape()[0], classes = in[0].shape()[1];
  Val w = cast(in[0], DType::F64), zero = scalar_like(w, 0);
  Val good = both(binary("le", zero, w), less(w, scalar_like(w, INFINITY)));
  Val some = less(zero, reduce(w, "max", {1}, true));  // NaN is not above 0
  Val bad = cast(unary("logical_not", both(good, some)), DType::I32);
  w = w + cast(checked_index(bad, 1,
                             "rng_multinomial: weights must be finite, not negative and not all 0 in a row, "
                             "where 0 marks a good and 1 a bad one"),
               DType::F64);
  auto numbers = [&](int64_t count) {
    Val state;
    return reshape(element(uniform53(words(in[1], Shape{rows * count, 4}, &state)), 1, 0), Shape{rows, count});
  };
  if (!at.replacement) {
    static const OpDef& sort = OpRegistry::global().get("sort");
    Val time = select(less(zero, w), -unary("log", numbers(classes)) / w, scalar_like(w, INFINITY)), order[2];
    em.emit(sort, make_attrs(SortAttrs{1, false}), {&time, 1}, order);
    out[0] = slice_axis(order[1], 1, 0, at.num_samples);
    return;
  }
  Val upto = em.emit1("cumsum", {w}, make_attrs(CumsumAttrs{1, false, false}));
  Val sum = slice_axis(upto, 1, classes - 1, classes), v = numbers(at.num_samples) * sum;
  auto count = [](const Val& hit, int64_t axis) { return reduce(cast(hit, DType::I32), "sum", {axis}, false); };
  Val below =
      count(binary("le", reshape(upto, Shape{rows, 1, classes}), reshape(v, Shape{rows, at.num_samples, 1})), 2);
  Val last = reshape(count(less(upto, sum), 1), Shape{rows, 1});  // for a number rounded up to the end
  out[0] = select(binary("eq", below, scalar_like(below, static_cast<double>(classes))), last, below);
}

// The counter is 64 bits in two int32 words: the low one is added to in int64, and what it carries goes to the high
// one.
void decompose_rng_skip(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const double counters = static_cast<double>((attrs_as<SkipAttrs>(attrs).n + 3) / 4);
  Val s = cast(in[0], DType::I64), two32 = scalar_like(s, 0x1p32);
  auto as_word = [&](const Val& v) {
    Val low = binary("mod", v, two32);
    return cast(select(less(low, scalar_like(low, 0x1p31)), low, low - two32), DType::I32);
  };
  Val low = binary("mod", slice_axis(s, 0, 2, 3), two32) + counters;
  Val high = slice_axis(s, 0, 3, 4) + binary("floor_div", low, two32);
  out[0] = concat({slice_axis(in[0], 0, 0, 2), as_word(low), as_word(high)}, 0);
}

void decompose_dropout(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const double p = attrs_as<DropoutAttrs>(attrs).p;
  const Val& x = in[0];
  Val u = uniform24(words(in[1], x.shape(), &out[2]));
  out[1] = select(less(scalar_like(u, p), u), scalar_like(x, 1 / (1 - p)), scalar_like(x, 0));
  out[0] = x * out[1];
}

}  // namespace mge
