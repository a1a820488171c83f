#include "pass/remove_dropout.h"

#include "pass/rewrite.h"

namespace mge::pass {

bool remove_dropout(Graph& g) {
  bool changed = false;
  const OpDef* dropout = OpRegistry::global().find("dropout");
  for (ir::NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    if (x.op != dropout || g.use_count(x.outputs[1])) continue;
    const ir::ValueId in = x.inputs[0], state = x.inputs[1];
    replace_value(g, x.outputs[0], in);
    g.replace_all_uses(x.outputs[2], state);
    g.erase(n);
    changed = true;
  }
  return changed;
}

}  // namespace mge::pass
