// Simulated quantisation in float32. Rounding has no slope, so each class says what its gradient is: a term that is 0
// and has that gradient is added to the rounded value.
#include <cmath>

#include "compat/emit.h"

namespace mge::compat {
namespace {

struct Range {
  int64_t qmin = INT32_MIN, qmax = INT32_MAX;
  static constexpr auto fields() { return field_list("qmin", &Range::qmin, "qmax", &Range::qmax); }
  double lo() const { return static_cast<double>(qmin); }
  double hi() const { return static_cast<double>(qmax); }
};

void check_input(const char* who, const Val& x) {
  MGE_CHECK(x.dtype() == DType::F32, Type, "{}: takes float32; got {}.", who, dtype_name(x.dtype()));
}
Val within(const Val& z, double lo, double hi) {
  return binary("logical_and", binary("le", scalar_like(z, lo), z), binary("le", z, scalar_like(z, hi)));
}
/// The value of y with the gradient of t, which must be finite where y is.
Val with_slope(Emitter& em, const Val& y, const Val& t) {
  const Val still = em.detached(t);
  return still.p == t.p ? y : em.detached(y) + (t - still);  // a graph that keeps no gradients needs no term
}

// x, scale, zero point
void fake_quant(Emitter& em, const Range& p, In in, Out& out) {
  check_input("FakeQuant", in[0]);
  const Val &x = in[0], &scale = in[1], &zero = in[2];
  const Val q = unary("round", x / scale) + zero;
  const Val y = (clip(q, p.lo(), p.hi()) - zero) * scale;
  out.push_back(with_slope(em, y, where0(within(q, p.lo(), p.hi()), x)));
}

// x, logarithm of the scale to base 2
void tqt(Emitter& em, const Range& p, In in, Out& out) {
  check_input("TQT", in[0]);
  const Val &x = in[0], &exponent = in[1];
  const Val scale = binary("pow", scalar_like(exponent, 2), exponent), z = x / scale;
  const Val r = clip(unary("round", z), p.lo(), p.hi());
  const Val inside = within(z, p.lo() - 0.5, p.hi() + 0.5);
  const Val slope = em.detached(scale * std::log(2.0) * select(inside, r - z, r));
  out.push_back(with_slope(em, r * scale, where0(inside, x) + exponent * slope));
}

// x, step size, zero point, factor of the step's gradient
void lsq(Emitter& em, const Range& p, In in, Out& out) {
  check_input("LSQ", in[0]);
  const Val &x = in[0], &step = in[1], &zero = in[2], &factor = in[3];
  const Val z = x / step + zero, kept = clip(z, p.lo(), p.hi());
  const Val y = (unary("round", kept) - zero) * step;
  const Val inside = within(z, p.lo(), p.hi());
  const Val slope = em.detached(factor * select(inside, unary("round", z) - z, kept));
  out.push_back(with_slope(em, y, where0(inside, x) + step * slope));
}

}  // namespace

void add_quantisation(Table& t) {
  t.add<Range, fake_quant>("FakeQuant", {3, 3}, "FakeQuant@1");
  t.add<Range, tqt>("TQT", {2, 2}, "TQT@1");
  t.add<Range, lsq>("LSQ", {4, 4}, "LSQ@1");
}

}  // namespace mge::compat
