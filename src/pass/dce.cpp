#include "pass/dce.h"

namespace mge::pass {

bool dce(Graph& g) {
  bool changed = false;
  auto order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    const ir::Node& x = g.node(order[i]);
    bool dead = !x.op->is(kEffect);
    for (ir::ValueId v : x.outputs) dead = dead && g.use_count(v) == 0;
    if (!dead) continue;
    g.erase(order[i]);
    changed = true;
  }
  for (size_t i = 0; i < g.constants().size(); ++i) {
    ir::ValueId v = g.constants()[i].value;
    if (v == ir::kNone || g.use_count(v)) continue;
    g.erase_constant(v);
    changed = true;
  }
  return changed;
}

}  // namespace mge::pass
