#include "op/recurrence/recurrence.h"
#include "op/emitter.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

Val steps(const Val& x, int64_t from, int64_t to) {
  return x.em->emit1("slice", {x}, make_attrs(SliceAttrs{{0}, {from}, {to}, {1}}));
}

void vjp_recurrence(VjpCtx& c) {
  const auto& at = attrs_as<RecurrenceAttrs>(c.attrs);
  const RecurrenceGeom g = recurrence_geom(at, c.in_shape(0), c.in_shape(1));
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
  const int64_t rows = g.steps * g.batch;
  Val before = reshape(c.in(2), Shape{1, g.batch, g.hidden});
  if (g.steps == 0) {
    before = steps(before, 0, 0);
  } else if (g.steps > 1) {
    Val rest = g.reverse ? steps(hs, 1, g.steps) : steps(hs, 0, g.steps - 1);
    before = g.reverse ? c.em->emit1("concat", {rest, before}, make_attrs(AxisAttrs{0}))
                       : c.em->emit1("concat", {before, rest}, make_attrs(AxisAttrs{0}));
  }
  c.set(1, matmul(reshape(out[0], Shape{rows, g.gates}), reshape(before, Shape{rows, g.hidden}), true, false));
}

}  // namespace

void register_recurrence_grad(OpRegistry& r) {
  r.grad("recurrence", vjp_recurrence, {.inputs = 0b1110, .outputs = 0b111});
}

}  // namespace mge
