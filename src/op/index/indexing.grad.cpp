#include "op/index/indexing.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

void vjp_indexing_one_hot(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("set_one_hot", {zeros(c.gy(), c.in_shape(0)), c.in(1), c.gy()}, Attrs(c.attrs)));
}
void vjp_set_one_hot(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("set_one_hot", {c.gy(), c.in(1), zeros(c.gy(), c.in_shape(1))}, Attrs(c.attrs)));
  if (c.wants(2)) c.set(2, c.em->emit1("indexing_one_hot", {c.gy(), c.in(1)}, Attrs(c.attrs)));
}
void vjp_take(VjpCtx& c) {
  const Sizes x = c.in_shape(0);
  TakeBwdAttrs at{attrs_as<TakeAttrs>(c.attrs).axis, to_ints(x.now())};
  if (c.wants(0)) c.set(0, c.em->emit1("take_bwd", {c.gy(), c.in(1)}, sized_attrs(std::move(at), "x_shape", x)));
}
void vjp_take_bwd(VjpCtx& c) {
  if (c.wants(0))
    c.set(0, c.em->emit1("take", {c.gy(), c.in(1)}, make_attrs(TakeAttrs{attrs_as<TakeBwdAttrs>(c.attrs).axis})));
}

void vjp_check_range(VjpCtx& c) { c.set(0, c.gy()); }

}  // namespace

void register_indexing_grad(OpRegistry& r) {
  r.grad("indexing_one_hot", vjp_indexing_one_hot, {.inputs = 0b10});
  r.grad("set_one_hot", vjp_set_one_hot, {.inputs = 0b010});
  r.grad("check_range", vjp_check_range);
  r.grad("take", vjp_take, {.inputs = 0b10});
  r.grad("take_bwd", vjp_take_bwd, {.inputs = 0b10});
  r.sized_grad("take_bwd", "x_shape");
}

}  // namespace mge
