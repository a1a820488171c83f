#include "pass/cse.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace mge::pass {
namespace {

constexpr size_t kMaxComparedBytes = 64 << 10;  // larger constants are merged only when they share storage

bool merge_constants(Graph& g) {
  bool changed = false;
  std::unordered_multimap<uint64_t, ir::ValueId> seen;
  for (size_t i = 0; i < g.constants().size(); ++i) {
    const ir::Constant c = g.constants()[i];
    if (c.value == ir::kNone || !c.storage) continue;
    const Meta& m = g.meta(c.value);
    bool small = m.bytes() <= kMaxComparedBytes;
    uint64_t h = m.hash(1);
    h = small ? hash_bytes({static_cast<const char*>(c.data()), m.bytes()}, h)
              : hash_mix(h, reinterpret_cast<uintptr_t>(c.data()));
    bool merged = false;
    auto [b, e] = seen.equal_range(h);
    for (; b != e && !merged; ++b) {
      const ir::Constant* o = g.constant_of(b->second);
      const Meta& om = g.meta(b->second);
      if (!om.same_type(m) || om.cn != m.cn) continue;
      if (o->data() != c.data() && !(small && std::memcmp(o->data(), c.data(), m.bytes()) == 0)) continue;
      g.replace_all_uses(c.value, b->second);
      g.erase_constant(c.value);
      merged = changed = true;
    }
    if (!merged) seen.emplace(h, c.value);
  }
  return changed;
}

SmallVec<ir::ValueId, 4> operands(const ir::Node& x) {
  auto in = x.inputs;
  if (x.op->is(kCommutative)) std::sort(in.begin(), in.end());
  return in;
}

}  // namespace

bool cse(Graph& g) {
  bool changed = merge_constants(g);
  std::unordered_multimap<uint64_t, ir::NodeId> seen;
  for (ir::NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    if (ir::takes_token(*x.op) || !x.sizes.empty()) continue;
    auto in = operands(x);
    uint64_t h = hash_mix(hash_mix(x.op->id, attrs_hash(x.attrs.get())), x.rerun);
    for (ir::ValueId v : in) h = hash_mix(h, static_cast<uint64_t>(v));
    bool merged = false;
    auto [b, e] = seen.equal_range(h);
    for (; b != e && !merged; ++b) {
      const ir::Node& o = g.node(b->second);
      if (o.op != x.op || o.rerun != x.rerun || !attrs_equal(o.attrs.get(), x.attrs.get()) || !(operands(o) == in))
        continue;
      for (size_t i = 0; i < x.outputs.size(); ++i) g.replace_all_uses(x.outputs[i], o.outputs[i]);
      g.erase(n);
      merged = changed = true;
    }
    if (!merged) seen.emplace(h, n);
  }
  return changed;
}

}  // namespace mge::pass
