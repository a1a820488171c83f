#include "op/conv/conv2d.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

// conv2d, conv2d_dx and conv2d_dw are one trilinear form of x, w and y: the adjoint of each is made of the other two.
template <class A>
Val fwd(const A& at, const Val& x, const Val& w) {
  return x.em->emit1("conv2d", {x, w}, make_attrs(Conv2dAttrs{at.stride, at.pad, at.dilate, at.groups}));
}
template <class A>
Val dx(const A& at, const Val& gy, const Val& w, const Shape& x) {
  return gy.em->emit1("conv2d_dx", {gy, w},
                      make_attrs(Conv2dDxAttrs{at.stride, at.pad, at.dilate, at.groups, to_ints(x)}));
}
template <class A>
Val dw(const A& at, const Val& x, const Val& gy, const Shape& w) {
  return gy.em->emit1("conv2d_dw", {x, gy},
                      make_attrs(Conv2dDwAttrs{at.stride, at.pad, at.dilate, at.groups, to_ints(w)}));
}

void vjp_conv2d(VjpCtx& c) {
  const auto& at = attrs_as<Conv2dAttrs>(c.attrs);
  if (c.wants(0)) c.set(0, dx(at, c.gy(), c.in(1), c.in_shape(0)));
  if (c.wants(1)) c.set(1, dw(at, c.in(0), c.gy(), c.in_shape(1)));
  if (c.wants(2)) c.set(2, reduce(c.gy(), "sum", {0, 2, 3}, true));
}
void vjp_conv2d_dx(VjpCtx& c) {
  const auto& at = attrs_as<Conv2dDxAttrs>(c.attrs);
  if (c.wants(0)) c.set(0, fwd(at, c.gy(), c.in(1)));
  if (c.wants(1)) c.set(1, dw(at, c.gy(), c.in(0), c.in_shape(1)));
}
void vjp_conv2d_dw(VjpCtx& c) {
  const auto& at = attrs_as<Conv2dDwAttrs>(c.attrs);
  if (c.wants(0)) c.set(0, dx(at, c.in(1), c.gy(), c.in_shape(0)));
  if (c.wants(1)) c.set(1, fwd(at, c.in(0), c.gy()));
}

}  // namespace

void register_conv2d_grad(OpRegistry& r) {
  r.grad("conv2d", vjp_conv2d, {.inputs = 0b11});
  r.grad("conv2d_dx", vjp_conv2d_dx, {.inputs = 0b11});
  r.grad("conv2d_dw", vjp_conv2d_dw, {.inputs = 0b11});
}

}  // namespace mge
