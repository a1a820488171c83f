#include "pass/winograd4.h"

#include "op/conv/conv2d.h"

namespace mge::pass {
namespace {

using ir::NodeId;
using ir::ValueId;

bool ask_one(Graph& g, NodeId n, const OpDef& fused) {
  const ir::Node& x = g.node(n);
  const Shape& w = g.meta(x.inputs[1]).shape;
  if (g.meta(x.outputs[0]).dtype != DType::F32 || w.rank != 4 || w[2] != 3 || w[3] != 3) return false;
  Conv2dFusedAttrs f;
  if (x.op == &fused) {
    f = attrs_as<Conv2dFusedAttrs>(x.attrs.get());
  } else {
    f = Conv2dFusedAttrs{attrs_as<Conv2dAttrs>(x.attrs.get())};
    f.has_bias = x.inputs.size() > 2;
    if (f.has_bias && g.meta(x.inputs[2]).shape != Shape{1, w[0], 1, 1}) return false;
  }
  if (f.tile || f.stride != Ints{1, 1} || f.dilate != Ints{1, 1} || f.groups != 1) return false;
  f.tile = 4;
  SmallVec<ValueId, 6> in(x.inputs.begin(), x.inputs.end());
  const NodeId made = g.add_node(fused, make_attrs(f), {in.data(), in.size()}, x.loc, n);
  g.replace_all_uses(g.node(n).outputs[0], g.node(made).outputs[0]);
  g.erase(n);
  return true;
}

}  // namespace

bool winograd4(Graph& g) {
  const OpDef &conv2d = OpRegistry::global().get(Conv2dAttrs::kOp),
              &fused = OpRegistry::global().get(Conv2dFusedAttrs::kOp);
  bool changed = false;
  for (NodeId n : g.order())
    if (!g.node(n).erased && (g.node(n).op == &conv2d || g.node(n).op == &fused)) changed |= ask_one(g, n, fused);
  return changed;
}

}  // namespace mge::pass
