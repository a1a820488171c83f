#include "pass/fuse_elementwise.h"

#include <algorithm>

#include "op/elementwise/fused.h"
#include "op/reduce/reduce.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Every input and live intermediate takes a tile of cache (jit/interp), and arguments are kept in fixed arrays. Every
// output is another stream to memory.
constexpr size_t kMaxInputs = 12, kMaxSteps = 24, kMaxOutputs = 6;
// NOTE(perf): up to here a second result costs nothing. Large single ops write past the cache (non-temporal stores),
// which tiles do not: two results of 64k floats took 25 us one by one and 28 us as one node, of 1M floats 590 and 770.
constexpr int64_t kMaxSharedElements = 16384;

using Members = std::vector<NodeId>;
bool has(const Members& m, NodeId n) { return std::find(m.begin(), m.end(), n) != m.end(); }

class Fuser {
 public:
  Fuser(Graph& g, const CanFuse& can) : g_(g), can_(can) {}

  bool run() {
    bool changed = false;
    auto order = g_.order();
    place_.assign(g_.n_node_ids(), 0);
    for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = i;
    for (size_t i = order.size(); i-- > 0;) {
      if (g_.node(order[i]).erased || !(eligible(order[i]) || reduces(order[i]))) continue;
      const NodeId last = stands_after(order[i]);
      Members members = grow(order[i], place_[last]);
      if (members.size() < 2) continue;
      replace(members, last);
      changed = true;
    }
    return changed;
  }

 private:
  bool allowed(const ir::Node& x) const {
    if (!can_) return true;
    SmallVec<DType, 4> in;
    for (ValueId v : x.inputs) in.push_back(g_.meta(v).dtype);
    return can_(*x.op, x.attrs.get(), {in.data(), in.size()}, g_.meta(x.outputs[0]).dtype);
  }
  bool eligible(NodeId n) const {
    const ir::Node& x = g_.node(n);
    return x.op->is(kElementwise) && x.outputs.size() == 1 && !ir::takes_token(*x.op) && allowed(x);
  }
  bool reduces(NodeId n) const {
    const ir::Node& x = g_.node(n);
    if (x.op->name != "reduce") return false;
    const Shape& s = g_.meta(x.inputs[0]).shape;
    return !refuse_reduction(s, reduced_axes(attrs_as<ReduceAttrs>(x.attrs.get()).axes, s.rank)) && allowed(x);
  }

  // The node ends up where this one is. That of a reduction to a small result is its operand, so that what reads the
  // operand between the two is no hindrance.
  NodeId stands_after(NodeId root) const {
    const ir::Node& x = g_.node(root);
    if (!reduces(root)) return root;
    const NodeId p = g_.value(x.inputs[0]).producer;
    const bool small = g_.meta(x.outputs[0]).shape.numel() * 8 <= g_.meta(x.inputs[0]).shape.numel();
    return p != kNone && small ? p : root;
  }

  std::vector<ValueId> inputs_of(const Members& members) const {
    std::vector<ValueId> in;
    for (NodeId n : members)
      for (ValueId v : g_.node(n).inputs) {
        NodeId p = g_.value(v).producer;
        if (!(p != kNone && has(members, p)) && std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
      }
    return in;
  }
  bool read_outside(NodeId n, const Members& members) const {
    ValueId v = g_.node(n).outputs[0];
    if (g_.escapes(v)) return true;
    for (NodeId u : g_.value(v).users)
      if (!has(members, u)) return true;
    return false;
  }

  /// The members together with producer `p` and what must come along: whoever reads a member before the place of the
  /// cluster is a member or stands in the way. Empty when that fails.
  Members joined(const Members& members, NodeId p, const Shape& shape, size_t place) const {
    Members all = members;
    all.push_back(p);
    for (size_t i = members.size(); i < all.size(); ++i)
      for (NodeId u : g_.value(g_.node(all[i]).outputs[0]).users) {
        if (has(all, u) || place_[u] > place) continue;
        if (all.size() == kMaxSteps || !eligible(u) || !(g_.meta(g_.node(u).outputs[0]).shape == shape)) return {};
        all.push_back(u);
      }
    size_t outputs = 0;
    for (NodeId n : all) outputs += read_outside(n, all);
    if (outputs > 1 && shape.numel() > kMaxSharedElements) return {};
    if (all.size() > kMaxSteps || outputs > kMaxOutputs || inputs_of(all).size() > kMaxInputs) return {};
    return all;
  }

  // Upwards from the root until nothing more fits.
  Members grow(NodeId root, size_t place) const {
    const ir::Node& x = g_.node(root);
    const Shape& shape = g_.meta(reduces(root) ? x.inputs[0] : x.outputs[0]).shape;
    Members members{root};
    for (bool grew = true; grew;) {
      grew = false;
      for (size_t m = 0; m < members.size() && !grew; ++m)
        for (ValueId v : g_.node(members[m]).inputs) {
          NodeId p = g_.value(v).producer;
          if (p == kNone || has(members, p) || !eligible(p) || !(g_.meta(v).shape == shape)) continue;
          Members more = joined(members, p, shape, place);
          if (more.empty()) continue;
          members = std::move(more);
          grew = true;
          break;
        }
    }
    return members;
  }

  void replace(Members& members, NodeId last) {
    NodeId root = members[0];
    std::sort(members.begin(), members.end(), [&](NodeId a, NodeId b) { return place_[a] < place_[b]; });
    std::vector<ValueId> in = inputs_of(members);
    FusedRegion region;
    for (ValueId v : in) region.inputs.push_back(g_.meta(v).dtype);
    std::vector<std::pair<ValueId, int>> code;
    for (size_t i = 0; i < in.size(); ++i) code.push_back({in[i], static_cast<int>(i)});
    std::vector<ValueId> results;
    for (NodeId n : members) {
      const ir::Node& x = g_.node(n);
      SmallVec<int, 3> args;
      for (ValueId v : x.inputs)
        args.push_back(std::find_if(code.begin(), code.end(), [&](auto& c) { return c.first == v; })->second);
      code.push_back({x.outputs[0], region.add(*x.op, x.attrs, {args.data(), args.size()})});
      if (n != root && !read_outside(n, members)) continue;
      results.push_back(x.outputs[0]);
      region.add_output(code.back().second);
    }
    NodeId fused = g_.add_node(OpRegistry::global().get("fused"), make_attrs(std::move(region)), in, g_.node(root).loc,
                               last == root ? root : g_.node(last).next);
    g_.set_rerun(fused, g_.node(root).rerun);
    place_.resize(g_.n_node_ids(), place_[last]);
    for (size_t o = 0; o < results.size(); ++o) g_.replace_all_uses(results[o], g_.node(fused).outputs[o]);
    for (NodeId n : members) g_.stand_for(fused, n);  // in the order of its steps
    for (size_t i = members.size(); i-- > 0;) g_.erase(members[i]);
  }

  Graph& g_;
  const CanFuse& can_;
  std::vector<size_t> place_;  // by node: its place in the order; a fused node has that of its root
};

}  // namespace

const char* refuse_reduction(const Shape& x, uint32_t axes) {
  constexpr int64_t kMinWidth = 128;
  int64_t count = 1, width = 1;
  bool inner = true;  // no reduced axis met yet, from the right
  for (int i = x.rank - 1; i >= 0; --i) {
    const bool reduced = axes >> i & 1;
    if (reduced) count *= x[i];
    if (reduced && x[i] != 1) inner = false;
    if (!reduced && inner) width *= x[i];
  }
  if (x.numel() == 0 || count == 1) return "nothing is added up";
  const uint32_t pixels = ((1u << x.rank) - 1) & ~3u;
  if (x.rank >= 3 && (axes & ~1u) == pixels) return "over the pixels of a channel: op reduce reads them channels-last";
  if (width > 1 && width < kMinWidth) return "rows of few elements, each of which would be a tile of its own";
  return nullptr;
}

bool fuse_elementwise(Graph& g, const CanFuse& can_fuse) { return Fuser(g, can_fuse).run(); }

}  // namespace mge::pass
