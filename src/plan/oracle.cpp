#include "plan/oracle.h"

#include <algorithm>

#include "ir/explain.h"

namespace mge {

OracleResult interpret(const ir::Graph& g, std::span<const Buffer> inputs, std::span<const Buffer> vars,
                       bool ref_only) {
  MGE_ASSERT(inputs.size() == g.inputs().size() && vars.size() == g.vars().size(),
             "oracle: {} inputs and {} vars for {} and {}", inputs.size(), vars.size(), g.inputs().size(),
             g.vars().size());
  std::vector<Buffer> val(g.n_values());
  std::vector<size_t> uses_left(g.n_values());
  for (size_t i = 0; i < inputs.size(); ++i) val[g.inputs()[i]] = inputs[i];
  for (size_t i = 0; i < vars.size(); ++i) val[g.vars()[i].in] = vars[i];
  for (auto& c : g.constants()) {
    if (c.value == ir::kNone) continue;
    MGE_CHECK(c.storage, Value, "oracle: constant %{} has no data; the text it was read from left it out.", c.value);
    const Meta& m = g.meta(c.value);
    // Storage of its own: offsets of constants are in bytes, those of layouts in elements.
    val[c.value] = {wrap_storage(const_cast<void*>(c.data()), m.bytes(), false, [keep = c.storage] {}),
                    Layout::contiguous(m.shape)};
  }
  for (size_t v = 0; v < g.n_values(); ++v) uses_left[v] = g.use_count(static_cast<ir::ValueId>(v));

  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const ir::Node& x = g.node(n);
    SmallVec<OpInput, 6> in;
    for (ir::ValueId v : x.inputs) in.push_back({&g.meta(v), &val[v]});
    SmallVec<Meta, 4> metas;
    for (ir::ValueId v : x.outputs) metas.push_back(g.meta(v));
    SmallVec<Buffer, 4> out(x.outputs.size());
    try {
      run_op(*x.op, x.attrs.get(), {in.data(), in.size()}, {metas.data(), metas.size()}, {out.data(), out.size()},
             {.ref_only = ref_only});
    } catch (const Error&) {
      ir::rethrow(ir::tell(g, n));
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (uses_left[x.outputs[i]]) val[x.outputs[i]] = out[i];
    for (ir::ValueId v : x.inputs)
      if (--uses_left[v] == 0) val[v] = {};
  }
  OracleResult r;
  for (auto& o : g.outputs()) r.outputs.push_back(val[o.value]);
  for (size_t i = 0; i < g.vars().size(); ++i)
    r.vars.push_back(g.vars()[i].out == ir::kNone ? vars[i] : val[g.vars()[i].out]);
  return r;
}

}  // namespace mge
