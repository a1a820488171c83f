#include "pass/fuse_elementwise.h"

#include <algorithm>

#include "op/elementwise/fused.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Every input and live intermediate takes a tile of cache (jit/interp), and arguments are kept in fixed arrays.
constexpr size_t kMaxInputs = 12, kMaxSteps = 24;

class Fuser {
 public:
  Fuser(Graph& g, const CanFuse& can) : g_(g), can_(can) {}

  bool run() {
    bool changed = false;
    auto order = g_.order();
    for (size_t i = order.size(); i-- > 0;) {
      if (g_.node(order[i]).erased || !eligible(order[i])) continue;
      std::vector<NodeId> members = grow(order[i]);
      if (members.size() < 2) continue;
      replace(members);
      changed = true;
    }
    return changed;
  }

 private:
  bool eligible(NodeId n) const {
    const ir::Node& x = g_.node(n);
    if (!x.op->is(kElementwise) || x.outputs.size() != 1 || ir::takes_token(*x.op)) return false;
    if (!can_) return true;
    SmallVec<DType, 4> in;
    for (ValueId v : x.inputs) in.push_back(g_.meta(v).dtype);
    return can_(*x.op, x.attrs.get(), {in.data(), in.size()}, g_.meta(x.outputs[0]).dtype);
  }

  /// A producer may join when all who read it are inside.
  bool may_join(NodeId p, const std::vector<NodeId>& members) const {
    ValueId v = g_.node(p).outputs[0];
    if (g_.escapes(v)) return false;
    for (NodeId u : g_.value(v).users)
      if (std::find(members.begin(), members.end(), u) == members.end()) return false;
    return true;
  }

  std::vector<ValueId> inputs_of(const std::vector<NodeId>& members) const {
    std::vector<ValueId> in;
    for (NodeId n : members)
      for (ValueId v : g_.node(n).inputs) {
        NodeId p = g_.value(v).producer;
        bool inside = p != kNone && std::find(members.begin(), members.end(), p) != members.end();
        if (!inside && std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
      }
    return in;
  }

  // Upwards from the root until nothing more fits.
  std::vector<NodeId> grow(NodeId root) {
    const Shape& shape = g_.meta(g_.node(root).outputs[0]).shape;
    std::vector<NodeId> members{root};
    for (bool grew = true; grew;) {
      grew = false;
      for (size_t m = 0; m < members.size() && members.size() < kMaxSteps; ++m) {
        for (ValueId v : g_.node(members[m]).inputs) {
          NodeId p = g_.value(v).producer;
          if (p == kNone || !eligible(p) || !(g_.meta(v).shape == shape) || !may_join(p, members)) continue;
          if (std::find(members.begin(), members.end(), p) != members.end()) continue;
          members.push_back(p);
          if (inputs_of(members).size() > kMaxInputs) {
            members.pop_back();
            continue;
          }
          grew = true;
          break;
        }
      }
    }
    return members;
  }

  void replace(std::vector<NodeId>& members) {
    NodeId root = members[0];
    // Definitions first: position in the graph decides.
    std::vector<NodeId> sorted;
    for (NodeId n = root; sorted.size() < members.size(); n = g_.node(n).prev)
      if (std::find(members.begin(), members.end(), n) != members.end()) sorted.push_back(n);
    std::reverse(sorted.begin(), sorted.end());

    std::vector<ValueId> in = inputs_of(sorted);
    FusedRegion region;
    for (ValueId v : in) region.inputs.push_back(g_.meta(v).dtype);
    std::vector<std::pair<ValueId, int>> code;
    for (size_t i = 0; i < in.size(); ++i) code.push_back({in[i], static_cast<int>(i)});
    for (NodeId n : sorted) {
      const ir::Node& x = g_.node(n);
      SmallVec<int, 3> args;
      for (ValueId v : x.inputs)
        args.push_back(std::find_if(code.begin(), code.end(), [&](auto& c) { return c.first == v; })->second);
      code.push_back({x.outputs[0], region.add(*x.op, x.attrs, {args.data(), args.size()})});
    }
    NodeId fused = g_.add_node(OpRegistry::global().get("fused"), make_attrs(FusedAttrs{region.print()}), in,
                               g_.node(root).loc, root);
    g_.replace_all_uses(g_.node(root).outputs[0], g_.node(fused).outputs[0]);
    for (size_t i = sorted.size(); i-- > 0;) g_.erase(sorted[i]);
  }

  Graph& g_;
  const CanFuse& can_;
};

}  // namespace

bool fuse_elementwise(Graph& g, const CanFuse& can_fuse) { return Fuser(g, can_fuse).run(); }

}  // namespace mge::pass
