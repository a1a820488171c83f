#include "pass/bn_to_scale_shift.h"

#include "ir/builder.h"

namespace mge::pass {

bool bn_to_scale_shift(Graph& g) {
  bool changed = false;
  for (ir::NodeId n : g.order())
    if (g.node(n).op->name == "batch_norm_infer") changed |= ir::decompose_node(g, n);
  return changed;
}

}  // namespace mge::pass
