#include "pass/move_casts.h"

#include <algorithm>

#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

bool is_cast(const Graph& g, NodeId n) { return n != kNone && g.node(n).op->name == "typecvt"; }

// Ops of one operand whose results are its elements, in another place or several times.
bool moves(const ir::Node& x) {
  static constexpr const char* kNames[] = {"reshape", "transpose",    "flatten", "expand_dims",
                                           "squeeze", "broadcast_to", "slice"};
  return x.inputs.size() == 1 && std::ranges::find(kNames, std::string_view(x.op->name)) != std::end(kNames);
}

bool plain(DType t) { return is_float(t) || is_int(t) || t == DType::Bool; }

// Products choose their kernel by the strides of what they read, and a cast has strides of its own.
bool feeds_product(const Graph& g, ValueId v) {
  for (NodeId u : g.value(v).users) {
    const ir::Node& x = g.node(u);
    if (x.op->is(kComputeBound)) return true;
    if (x.op->is(kView) && feeds_product(g, x.outputs[0])) return true;
  }
  return false;
}

bool single(const Graph& g, ValueId v) { return g.value(v).users.size() == 1 && !g.escapes(v); }

// A wide operand of `mover` made by a cast: move the narrow one. Nothing is gained by fewer elements after the move.
bool sink(Graph& g, NodeId mover) {
  const ir::Node& m = g.node(mover);
  const ValueId wide = m.inputs[0], out = m.outputs[0];
  const NodeId cast = g.value(wide).producer;
  if (!is_cast(g, cast) || !single(g, wide) || feeds_product(g, out)) return false;
  const ValueId narrow = g.node(cast).inputs[0];
  const DType from = g.meta(narrow).dtype, to = g.meta(wide).dtype;
  if (!plain(from) || !plain(to) || dtype_size(from) >= dtype_size(to)) return false;
  if (g.meta(out).shape.numel() > g.meta(wide).shape.numel()) return false;  // a cast for each copy
  const NodeId moved = g.add_node(*m.op, m.attrs, {&narrow, 1}, m.loc, mover);
  const NodeId again =
      g.add_node(*g.node(cast).op, g.node(cast).attrs, {&g.node(moved).outputs[0], 1}, g.node(cast).loc, mover);
  replace_value(g, out, g.node(again).outputs[0]);
  g.stand_for(moved, mover);
  g.stand_for(again, cast);
  g.erase(mover);
  g.erase(cast);
  return true;
}

// A narrow result of a mover: cast first.
bool hoist(Graph& g, NodeId cast) {
  const ir::Node& c = g.node(cast);
  const ValueId wide = c.inputs[0], out = c.outputs[0];
  const NodeId mover = g.value(wide).producer;
  if (mover == kNone || !moves(g.node(mover)) || !g.node(mover).sizes.empty() || !single(g, wide)) return false;
  if (feeds_product(g, out)) return false;
  const ValueId x = g.node(mover).inputs[0];
  const DType from = g.meta(wide).dtype, to = g.meta(out).dtype;
  if (!plain(from) || !plain(to) || dtype_size(from) <= dtype_size(to)) return false;
  if (g.meta(x).shape.numel() > g.meta(wide).shape.numel()) return false;  // it takes a part: cast that alone
  const NodeId first = g.add_node(*c.op, c.attrs, {&x, 1}, c.loc, cast);
  const NodeId moved =
      g.add_node(*g.node(mover).op, g.node(mover).attrs, {&g.node(first).outputs[0], 1}, g.node(mover).loc, cast);
  replace_value(g, out, g.node(moved).outputs[0]);
  g.stand_for(first, cast);
  g.stand_for(moved, mover);
  g.erase(cast);
  g.erase(mover);
  hoist(g, first);
  return true;
}

}  // namespace

bool move_casts(Graph& g) {
  bool changed = false;
  for (NodeId n : g.order()) {  // forwards: a cast sinks through all that follows
    const ir::Node& x = g.node(n);
    if (!x.erased && moves(x) && x.sizes.empty()) changed |= sink(g, n);
  }
  auto order = g.order();
  for (size_t i = order.size(); i-- > 0;)  // backwards: one rises through all before it
    if (!g.node(order[i]).erased && is_cast(g, order[i])) changed |= hoist(g, order[i]);
  return changed;
}

}  // namespace mge::pass
