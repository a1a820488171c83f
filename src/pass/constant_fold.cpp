#include "pass/constant_fold.h"

#include <algorithm>

namespace mge::pass {
namespace {

constexpr size_t kAlwaysFoldBytes = 4096;
constexpr size_t kMayGrowBytes = 1 << 20;  // by one fold of constants that others go on reading

bool worth_it(const Graph& g, const ir::Node& x) {
  size_t in = 0, freed = 0, out = 0;
  for (ir::ValueId v : x.inputs) {
    in += g.meta(v).bytes();
    if (g.use_count(v) == 1) freed += g.meta(v).bytes();
  }
  for (ir::ValueId v : x.outputs) out += g.meta(v).bytes();
  return out <= std::max(in, kAlwaysFoldBytes) && out <= freed + kMayGrowBytes;
}

}  // namespace

bool constant_fold(Graph& g, const ir::Evaluator& evaluate) {
  bool changed = false;
  for (ir::NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    if (ir::takes_token(*x.op) || x.outputs.empty() || !x.sizes.empty() || !worth_it(g, x)) continue;
    std::vector<ir::ConstTensor> in, out;
    for (ir::ValueId v : x.inputs)
      if (auto* c = g.constant_of(v); c && c->storage) in.push_back({g.meta(v), c->storage, c->offset});
    if (in.size() != x.inputs.size()) continue;
    for (ir::ValueId v : x.outputs) out.push_back({g.meta(v), nullptr, 0});
    try {
      evaluate(*x.op, x.attrs.get(), in, out);
    } catch (const Error&) {
      continue;  // it fails at run time, where the user sees it with a location
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (g.use_count(x.outputs[i]) == 0) continue;
      ir::ValueId c = g.add_constant(g.meta(x.outputs[i]), out[i].storage, out[i].offset);
      g.set_name(c, g.value(x.outputs[i]).name);
      g.replace_all_uses(x.outputs[i], c);
    }
    g.erase(n);
    changed = true;
  }
  return changed;
}

}  // namespace mge::pass
