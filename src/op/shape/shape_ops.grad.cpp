#include "op/shape/shape_ops.h"
#include "op/emitter.h"

namespace mge {
namespace {

void vjp_reshape(VjpCtx& c) { c.set(0, reshape(c.gy(), c.in_shape(0))); }
void vjp_transpose(VjpCtx& c) {
  const Ints& p = attrs_as<PermAttrs>(c.attrs).perm;
  Ints inverse(p.size());
  for (size_t i = 0; i < p.size(); ++i) inverse[p[i]] = static_cast<int64_t>(i);
  c.set(0, transpose(c.gy(), inverse));
}
void vjp_broadcast_to(VjpCtx& c) { c.set(0, unbroadcast(c.gy(), c.in_shape(0))); }

Val full_of(const VjpCtx& c, const Meta& m) {
  Val zero = scalar_like(c.gy(), 0);
  return broadcast_to(zero, m.shape);
}
void vjp_slice(VjpCtx& c) {
  Val zeros = full_of(c, c.in_metas[0]);
  c.set(0, c.em->emit1("set_slice", {zeros, c.gy()}, make_attrs(attrs_as<SliceAttrs>(c.attrs))));
}
void vjp_set_slice(VjpCtx& c) {
  const auto& a = attrs_as<SliceAttrs>(c.attrs);
  if (c.wants(0)) c.set(0, c.em->emit1("set_slice", {c.gy(), full_of(c, c.in_metas[1])}, make_attrs(a)));
  if (c.wants(1)) c.set(1, c.em->emit1("slice", {c.gy()}, make_attrs(a)));
}
void vjp_concat(VjpCtx& c) {
  int axis = normalize_axis("concat", attrs_as<AxisAttrs>(c.attrs).axis, c.in_shape(0).rank);
  int64_t at = 0;
  for (size_t i = 0; i < c.n_in(); ++i) {
    int64_t n = c.in_shape(i)[axis];
    if (c.wants(i)) c.set(i, c.em->emit1("slice", {c.gy()}, make_attrs(SliceAttrs{{axis}, {at}, {at + n}, {1}})));
    at += n;
  }
}
void vjp_copy(VjpCtx& c) { c.set(0, c.gy()); }

}  // namespace

void register_shape_grads(OpRegistry& r) {
  for (const char* op : {"reshape", "expand_dims", "squeeze", "flatten"}) r.grad(op, vjp_reshape);
  r.grad("transpose", vjp_transpose);
  r.grad("broadcast_to", vjp_broadcast_to);
  r.grad("slice", vjp_slice);
  r.put_back("slice", "set_slice");
  r.grad("set_slice", vjp_set_slice);
  r.grad("concat", vjp_concat);
  r.grad("copy", vjp_copy);
}

}  // namespace mge
