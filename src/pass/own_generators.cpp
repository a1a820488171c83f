#include "pass/own_generators.h"

namespace mge::pass {
namespace {

/// Nodes that an output, a guard, a commit or an effect needs.
std::vector<bool> needed_nodes(const Graph& g) {
  std::vector<bool> value(g.n_values()), node(g.n_node_ids());
  auto take = [&](ir::ValueId v) { value[static_cast<size_t>(v)] = true; };
  for (auto& o : g.outputs()) take(o.value);
  for (auto& x : g.guards()) take(x.value);
  for (auto& v : g.vars())
    if (v.out != ir::kNone) take(v.out);
  const auto order = g.order();
  for (auto n = order.rbegin(); n != order.rend(); ++n) {
    const ir::Node& x = g.node(*n);
    bool needed = x.op->is(kEffect);
    for (ir::ValueId v : x.outputs) needed = needed || value[static_cast<size_t>(v)];
    if (!needed) continue;
    node[static_cast<size_t>(*n)] = true;
    for (ir::ValueId v : x.inputs) take(v);
    for (auto& s : x.sizes) take(s.value);
  }
  return node;
}

/// Where `x` hands on the state that it takes as `state`; kNone: it does not.
ir::ValueId new_state(const ir::Node& x, ir::ValueId state) {
  bool takes = false;
  for (size_t i = 0; i < x.op->inputs.size() && i < x.inputs.size(); ++i)
    takes = takes || (x.op->inputs[i] == "state" && x.inputs[i] == state);
  for (size_t i = 0; takes && i < x.op->outputs.size(); ++i)
    if (x.op->outputs[i] == "new_state") return x.outputs[i];
  return ir::kNone;
}

/// The state after all draws that start from `state`; kNone: there are none, or they part ways.
ir::ValueId state_after(const Graph& g, const std::vector<bool>& needed, ir::ValueId state) {
  ir::ValueId after = ir::kNone;  // behind the last draw that is needed
  bool draws = false;
  while (state != ir::kNone) {
    ir::ValueId next = ir::kNone;
    for (ir::NodeId n : g.value(state).users) {
      const ir::Node& x = g.node(n);
      const ir::ValueId to = new_state(x, state);
      if (to != ir::kNone && next != ir::kNone && to != next) return ir::kNone;
      draws = draws || (x.op->is(kRandom) && needed[static_cast<size_t>(n)]);
      if (to != ir::kNone) next = to;
      // A draw that gives no state is followed by the skip past it, which nothing but this chain needs.
      if (to != ir::kNone && draws && (needed[static_cast<size_t>(n)] || !x.op->is(kRandom))) after = to;
    }
    state = next;
  }
  return after;
}

}  // namespace

std::vector<GeneratorVar> own_generators(Graph& g) {
  std::vector<GeneratorVar> made;
  const std::vector<bool> needed = needed_nodes(g);
  const size_t n = g.constants().size();
  for (size_t i = 0; i < n; ++i) {
    const ir::Constant c = g.constants()[i];
    if (c.value == ir::kNone || !c.storage) continue;
    const ir::ValueId after = state_after(g, needed, c.value);
    if (after == ir::kNone) continue;
    std::string name;
    for (size_t k = made.size(); name.empty() || g.find_var(name) != ir::kNone || g.find_input(name) != ir::kNone; ++k)
      name = "generator" + std::to_string(k);
    g.replace_all_uses(c.value, g.add_var(name, g.meta(c.value)));
    g.commit(g.vars().size() - 1, after);
    g.erase_constant(c.value);
    made.push_back({std::move(name), c});
  }
  return made;
}

void freeze_generator(Graph& g, size_t var, const Meta& m, RefPtr<Storage> start, size_t offset) {
  g.commit(var, ir::kNone);
  g.replace_all_uses(g.vars()[var].in, g.add_constant(m, std::move(start), offset));
}

}  // namespace mge::pass
