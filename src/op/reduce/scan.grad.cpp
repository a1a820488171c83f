#include "op/reduce/scan.h"
#include "op/emitter.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// x moved one step along the axis, away from the end the scan starts at (or towards it), with `fill` in the gap.
Val shifted(const Val& x, int axis, bool to_higher, double fill) {
  constexpr int64_t kOpen = SliceAttrs::kOpen;
  if (x.meta().shape[axis] == 0 && !x.em->any_size(x)) return x;
  SliceAttrs keep = to_higher ? SliceAttrs{{axis}, {0}, {-1}, {1}, true} : SliceAttrs{{axis}, {1}, {kOpen}, {1}, true};
  Val rest = x.em->emit1("slice", {x}, make_attrs(std::move(keep)));
  Val first = x.em->emit1("slice", {x}, make_attrs(SliceAttrs{{axis}, {0}, {1}, {1}, true}));  // none of an empty x
  Val edge = first.em->emit1("fill_like", {first}, make_attrs(ValueAttrs{fill}));
  Attrs along = make_attrs(AxisAttrs{axis});
  return to_higher ? x.em->emit1("concat", {edge, rest}, along) : x.em->emit1("concat", {rest, edge}, along);
}
int axis_of(const VjpCtx& c, int64_t axis) { return normalize_axis(c.op->name.c_str(), axis, c.in_shape(0).rank); }

void vjp_cumsum(VjpCtx& c) {
  CumsumAttrs a = attrs_as<CumsumAttrs>(c.attrs);
  a.reverse = !a.reverse;
  c.set(0, c.em->emit1("cumsum", {c.gy()}, make_attrs(std::move(a))));
}

// s[i] = g[i] + a[i+1] s[i+1]: what element i receives from itself and from all that follow.
Val received(const VjpCtx& c, const Val& a, const Val& g, int axis, bool reverse) {
  return c.em->emit1("affine_scan", {shifted(a, axis, reverse, 0), g}, make_attrs(ScanAttrs{axis, !reverse}));
}
// Free of division, so zeros in x are no exception.
void vjp_cumprod(VjpCtx& c) {
  const auto& a = attrs_as<ScanAttrs>(c.attrs);
  int axis = axis_of(c, a.axis);
  Val before = shifted(c.out(), axis, !a.reverse, 1);
  c.set(0, before * received(c, c.in(0), c.gy(), axis, a.reverse));
}
void vjp_affine_scan(VjpCtx& c) {
  const auto& a = attrs_as<ScanAttrs>(c.attrs);
  int axis = axis_of(c, a.axis);
  Val s = received(c, c.in(0), c.gy(), axis, a.reverse);
  if (c.wants(0)) c.set(0, s * shifted(c.out(), axis, !a.reverse, 0));
  if (c.wants(1)) c.set(1, s);
}

}  // namespace

void register_scan_grads(OpRegistry& r) {
  r.grad("cumsum", vjp_cumsum);
  r.grad("cumprod", vjp_cumprod, {.inputs = 1, .outputs = 1});
  r.grad("affine_scan", vjp_affine_scan, {.inputs = 1, .outputs = 1});
}

}  // namespace mge
