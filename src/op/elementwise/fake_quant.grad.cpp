// Rounding has no slope, so each op says what its gradient is: x passes where its integer was in range, and the scale
// that is learnt gets the derivative of the rounded value with round taken as the identity.
#include "op/elementwise/fake_quant.h"

#include <cmath>

#include "op/compose.h"

namespace mge {
namespace {

Val within(const Val& z, double lo, double hi) {
  return binary("logical_and", binary("le", scalar_like(z, lo), z), binary("le", z, scalar_like(z, hi)));
}
Val clipped(const Val& z, const FakeQuantAttrs& a) {
  return minimum(maximum(z, scalar_like(z, a.lo())), scalar_like(z, a.hi()));
}
void set_sum(VjpCtx& c, size_t i, const Val& g) { c.set(i, unbroadcast(g, c.in_shape(i))); }
void pass_on(VjpCtx& c, const Val& inside) {
  if (c.wants(0)) set_sum(c, 0, select(inside, c.gy(), scalar_like(c.gy(), 0)));
}

void vjp_fake_quant(VjpCtx& c) {
  const auto& a = attrs_as<FakeQuantAttrs>(c.attrs);
  pass_on(c, within(unary("round", c.in(0) / c.in(1)) + c.in(2), a.lo(), a.hi()));
}

void vjp_tqt(VjpCtx& c) {
  const auto& a = attrs_as<FakeQuantAttrs>(c.attrs);
  const Val scale = binary("pow", scalar_like(c.in(1), 2), c.in(1)), z = c.in(0) / scale;
  const Val inside = within(z, a.lo() - 0.5, a.hi() + 0.5);
  pass_on(c, inside);
  if (!c.wants(1)) return;
  const Val r = clipped(unary("round", z), a);
  set_sum(c, 1, c.gy() * (scale * std::log(2.0) * select(inside, r - z, r)));
}

void vjp_lsq(VjpCtx& c) {
  const auto& a = attrs_as<FakeQuantAttrs>(c.attrs);
  const Val z = c.in(0) / c.in(1) + c.in(2), inside = within(z, a.lo(), a.hi());
  pass_on(c, inside);
  if (c.wants(1)) set_sum(c, 1, c.gy() * (c.in(3) * select(inside, unary("round", z) - z, clipped(z, a))));
}

}  // namespace

void register_fake_quant_grads(OpRegistry& r) {
  r.grad("fake_quant", vjp_fake_quant, {.inputs = 0b111});
  r.grad("tqt", vjp_tqt, {.inputs = 0b11});
  r.grad("lsq", vjp_lsq, {.inputs = 0b1111});
}

}  // namespace mge
