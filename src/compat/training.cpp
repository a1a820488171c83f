// Updates and checks.
#include <cstdio>

#include "compat/emit.h"
#include "op/optim/optim.h"

namespace mge::compat {
namespace {

struct CheckNonFinite {
  double scale = 1;
  static constexpr auto fields() { return field_list("scale", &CheckNonFinite::scale); }
};
struct AssertEqual {
  double maxerr = 1e-4;
  bool verbose = false;
  static constexpr auto fields() {
    return field_list("maxerr", &AssertEqual::maxerr, "verbose", &AssertEqual::verbose);
  }
};
struct Lamb {
  double beta_1 = 1, beta_2 = 1, step = 1, lr = 1, weight_decay = 1, eps = 1;
  bool bias_correction = true, always_adapt = false;
  static constexpr auto fields() {
    using P = Lamb;
    return field_list("beta_1", &P::beta_1, "beta_2", &P::beta_2, "step", &P::step, "lr", &P::lr, "weight_decay",
                      &P::weight_decay, "eps", &P::eps, "bias_correction", &P::bias_correction, "always_adapt",
                      &P::always_adapt);
  }
};

// The scaled tensors, then 1 when any of them holds inf or NaN.
void check_non_finite(Emitter& em, const CheckNonFinite& p, In in, Out& out) {
  Val bad;
  for (auto& given : in) {
    const Val x = given * number(given, p.scale);
    out.push_back(x);
    const Val seen = em.detached(x);
    // x - x is 0 for finite numbers and NaN for the others.
    const Val here = x.shape().numel() ? reduce(cast(unary("isnan", seen - seen), DType::I32), "max", {}, false)
                                       : em.constant(0, DType::I32, x);
    bad = bad ? binary("maximum", bad, here) : here;
  }
  out.push_back(bad);
}

// |a - b| / max(min(|a|, |b|), 1) at most maxerr.
void assert_equal(Emitter&, const AssertEqual& p, In in, Out& out) {
  const Val &a = in[0], &b = in[1];
  MGE_CHECK(a.shape() == b.shape(), Env, "AssertEqual: shapes differ, {} and {}.", a.shape().str(), b.shape().str());
  if (a.shape().numel()) {
    const Val least = binary("minimum", unary("abs", a), unary("abs", b));
    const Val error = unary("abs", a - b) / binary("maximum", least, number(least, 1));
    const double most = known_number("AssertEqual", "the error", reduce(wide(error), "max", {}, false));
    if (p.verbose) std::printf("AssertEqual: maxerr %g\n", most);
    MGE_CHECK(most <= p.maxerr, Env, "AssertEqual: error {} exceeds {}.", most, p.maxerr);
  }
  out.push_back(a);
}

// dest, delta, alpha, beta -> the new value of dest
void inplace_add(Emitter&, const None&, In in, Out& out) { out.push_back(in[0] * in[2] + in[1] * in[3]); }

// m, v, parameter, gradient -> m, v, parameter
void lamb_update(Emitter& em, const Lamb& p, In in, Out& out) {
  const Val &m = in[0], &v = in[1], &w = in[2], &g = in[3];
  const Val args[] = {w, g, m, v, em.constant(p.step, DType::F32, w)};
  const Out r = emit_all(em, "lamb_direction", args,
                         make_attrs(LambAttrs{p.beta_1, p.beta_2, p.eps, p.weight_decay, p.bias_correction}));
  const Val& direction = r[0];
  Val lr = em.constant(p.lr, DType::F32, w);
  if (p.always_adapt || p.weight_decay > 0) {
    auto length = [](const Val& x) { return unary("sqrt", sum(unary("square", x))); };
    const Val size = length(w), step = length(direction);
    const Val usable = binary("logical_and", positive(size), positive(step));
    lr = lr * select(usable, size / select(usable, step, scalar_like(step, 1)), scalar_like(size, 1));
  }
  out = {r[1], r[2], emit("sgd_update", {w, direction, lr}, SgdAttrs{0})};
}

}  // namespace

void add_training(Table& t) {
  t.add<CheckNonFinite, check_non_finite>("CheckNonFinite", {1, -1}, "CheckNonFinite@1");
  t.add<AssertEqual, assert_equal>("AssertEqual", {2, 3}, "AssertEqual@1");
  t.add<None, inplace_add>("InplaceAdd", {4, 4}, {}, Effect::Replace);
  t.add<Lamb, lamb_update>("LAMBUpdate", {4, 4});
}

}  // namespace mge::compat
