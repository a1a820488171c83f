#include "op/conv/conv2d.h"
#include "op/conv/conv3d.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

// A convolution and its two adjoints are one trilinear form of x, w and y: the adjoint of each is made of the others.
template <size_t D>
struct Form {
  const ConvAttrs<D>& at;
  Val y(const Val& x, const Val& w) const {
    return x.em->emit1(ConvAttrs<D>::kOp, {x, w}, make_attrs<ConvAttrs<D>>(at));
  }
  Val dx(const Val& gy, const Val& w, const Sizes& x) const {
    return gy.em->emit1(ConvDxAttrs<D>::kOp, {gy, w}, sized_attrs(ConvDxAttrs<D>{at, to_ints(x.now())}, "x_shape", x));
  }
  Val dw(const Val& x, const Val& gy, const Sizes& w) const {
    return gy.em->emit1(ConvDwAttrs<D>::kOp, {x, gy}, sized_attrs(ConvDwAttrs<D>{at, to_ints(w.now())}, "w_shape", w));
  }
};

template <class A>
void vjp_conv(VjpCtx& c) {
  const Form<A::kAxes> form{attrs_as<A>(c.attrs)};
  if constexpr (A::kRole == ConvRole::InputGrad) {
    if (c.wants(0)) c.set(0, form.y(c.gy(), c.in(1)));
    if (c.wants(1)) c.set(1, form.dw(c.gy(), c.in(0), c.in_shape(1)));
  } else if constexpr (A::kRole == ConvRole::WeightGrad) {
    if (c.wants(0)) c.set(0, form.dx(c.in(1), c.gy(), c.in_shape(0)));
    if (c.wants(1)) c.set(1, form.y(c.in(0), c.gy()));
  } else {
    if (c.wants(0)) c.set(0, form.dx(c.gy(), c.in(1), c.in_shape(0)));
    if (c.wants(1)) c.set(1, form.dw(c.in(0), c.gy(), c.in_shape(1)));
    if (A::kAxes == 2 && c.wants(2)) c.set(2, reduce(c.gy(), "sum", {0, 2, 3}, true));
  }
}

template <class... A>
void add(OpRegistry& r) {
  (r.grad(A::kOp, vjp_conv<A>, {.inputs = 0b11, .read_for = Saves::ReadFor::Other}), ...);
}

}  // namespace

void register_conv2d_grad(OpRegistry& r) {
  add<Conv2dAttrs, Conv2dDxAttrs, Conv2dDwAttrs>(r);
  r.sized_grad(Conv2dDxAttrs::kOp, "x_shape");
  r.sized_grad(Conv2dDwAttrs::kOp, "w_shape");
}
void register_conv3d_grad(OpRegistry& r) {
  add<Conv3dAttrs, Conv3dDxAttrs, Conv3dDwAttrs>(r);
  r.sized_grad(Conv3dDxAttrs::kOp, "x_shape");
  r.sized_grad(Conv3dDwAttrs::kOp, "w_shape");
}

}  // namespace mge
