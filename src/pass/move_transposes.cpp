#include "pass/move_transposes.h"

#include <algorithm>

#include "op/shape/shape_ops.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Others would see other strides, and products choose their kernel by them.
bool read_by_elementwise_only(const Graph& g, ValueId v) {
  if (g.escapes(v) || g.value(v).users.empty()) return false;
  return std::ranges::all_of(
      g.value(v).users, [&](NodeId u) { return g.node(u).op->is(kElementwise) || g.node(u).op->name == "reduce"; });
}

// `v` as if it had been broadcast to the rank of `perm`, and then transposed.
ValueId transposed(Rewriter& r, ValueId v, const Attrs& perm, int rank) {
  const Shape& s = r.g.meta(v).shape;
  if (s.numel() == 1 && s.rank == 0) return v;
  if (s.rank < rank) {
    Shape wide = s;
    while (wide.rank < rank) wide.insert(0, 1);
    v = r.emit("reshape", make_attrs(ShapeAttrs{to_ints(wide)}), {v});
  }
  return r.emit("transpose", perm, {v});
}

ValueId to_operands(Rewriter& r) {
  const ValueId y = r.in(0);
  const NodeId p = r.g.value(y).producer;
  if (p == kNone || r.g.escapes(y) || !read_by_elementwise_only(r.g, r.node().outputs[0])) return kNone;
  const ir::Node& x = r.g.node(p);
  if (!x.op->is(kElementwise) || x.outputs.size() != 1 || ir::takes_token(*x.op)) return kNone;
  if (r.g.value(y).users.size() != 1) return kNone;
  const Attrs perm = r.node().attrs;
  const int rank = r.meta().shape.rank;
  const std::vector<ValueId> from(x.inputs.begin(), x.inputs.end());
  std::vector<ValueId> in;
  for (ValueId v : from) in.push_back(transposed(r, v, perm, rank));
  return r.g.node(r.g.add_node(*r.g.node(p).op, r.g.node(p).attrs, in, r.g.node(p).loc, r.n)).outputs[0];
}

constexpr Rule kRules[] = {{"transpose", to_operands}};

}  // namespace

bool move_transposes(Graph& g) { return apply_rules({.g = g}, kRules); }

}  // namespace mge::pass
