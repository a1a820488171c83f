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

void vjp_slice(VjpCtx& c) {
  c.set(0, c.em->emit1("set_slice", {zeros(c.gy(), c.in_shape(0)), c.gy()}, Attrs(c.attrs)));
}
void vjp_set_slice(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("set_slice", {c.gy(), zeros(c.gy(), c.in_shape(1))}, Attrs(c.attrs)));
  if (c.wants(1)) c.set(1, c.em->emit1("slice", {c.gy()}, Attrs(c.attrs)));
}
// Places are sums of sizes; those of a recorded call are sums of what it knows of them.
void vjp_concat(VjpCtx& c) {
  int axis = normalize_axis("concat", attrs_as<AxisAttrs>(c.attrs).axis, c.in_shape(0).rank);
  int64_t at = 0;
  Val place;
  for (size_t i = 0; i < c.n_in(); ++i) {
    const Sizes s = c.in_shape(i);
    const int64_t n = s.now()[axis];
    const bool sized = static_cast<bool>(s.operand());
    Val next = place;
    if (sized) {
      Val length = c.em->emit1("slice", {s.operand()}, make_attrs(SliceAttrs{{0}, {axis}, {axis + 1}, {1}}));
      next = !place ? length + static_cast<double>(at) : place + length;
    } else if (place) {
      next = place + static_cast<double>(n);
    }
    if (c.wants(i)) {
      std::vector<SizeOperand> sizes;
      if (place) sizes.push_back({field_index<SliceAttrs>("starts"), 0, place.p});
      if (next) sizes.push_back({field_index<SliceAttrs>("stops"), 0, next.p});
      c.set(i, c.em->emit1("slice", {c.gy()}, make_attrs(SliceAttrs{{axis}, {at}, {at + n}, {1}}, std::move(sizes))));
    }
    place = next;
    at += n;
  }
}
void vjp_sum_to(VjpCtx& c) { c.set(0, broadcast_to(c.gy(), c.in_shape(0))); }
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
  r.grad("sum_to", vjp_sum_to);
  for (const char* op : {"reshape", "broadcast_to", "slice", "set_slice", "sum_to"}) r.sized_grad(op);
}

}  // namespace mge
