#include "op/recurrence/recurrence.h"
#include "op/emitter.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

Val steps(const Val& x, int64_t from, int64_t to) {
  return x.em->emit1("slice", {x}, make_attrs(SliceAttrs{{0}, {from}, {to}, {1}, true}));
}

void vjp_recurrence(VjpCtx& c) {
  const auto& at = attrs_as<RecurrenceAttrs>(c.attrs);
  const RecurrenceGeom g = recurrence_geom(at, c.in_shape(0).now(), c.in_shape(1));
  const bool any_size = static_cast<bool>(c.in_shape(0).operand());
  static const OpDef& bwd = OpRegistry::global().get("recurrence_bwd");
  const Val &w = c.in(1), &hs = c.out(0);
  SmallVec<Val, 8> in{w, hs, c.gy(0)};
  if (g.kind == CellKind::Lstm) {
    for (const Val& v : {c.out(2), c.out(1), c.in(3), c.gy(1) ? c.gy(1) : zeros_like(hs)}) in.push_back(v);
    if (c.gy(2)) in.push_back(c.gy(2));
  }
  Val out[3];
  c.em->emit(bwd, make_attrs(at), {in.data(), in.size()}, out);
  for (size_t i : {0, 2, 3})
    if (c.wants(i)) c.set(i, out[i == 0 ? 0 : i - 1]);
  if (!c.wants(1)) return;
  // One product over all steps: each step's gates with the state before it.
  auto rows = [&](const Val& x, int64_t width) {
    return x.em->emit1("reshape", {x}, make_attrs(ShapeAttrs{{any_size ? -1 : g.steps * g.batch, width}}));
  };
  Val before = expand_dims(c.in(2), {0});
  if (g.steps == 0) {
    c.in_shape(0).fixed();
    before = steps(before, 0, 0);
  } else if (g.steps > 1 || any_size) {
    Val rest = g.reverse ? steps(hs, 1, SliceAttrs::kOpen) : steps(hs, 0, -1);
    before = g.reverse ? c.em->emit1("concat", {rest, before}, make_attrs(AxisAttrs{0}))
                       : c.em->emit1("concat", {before, rest}, make_attrs(AxisAttrs{0}));
  }
  c.set(1, matmul(rows(out[0], g.gates), rows(before, g.hidden), true, false));
}

}  // namespace

void register_recurrence_grad(OpRegistry& r) {
  r.grad("recurrence", vjp_recurrence, {.inputs = 0b1110, .outputs = 0b111});
}

}  // namespace mge
