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
// Lengths of rows: every row is some calls, and a register holds a whole one (jit/interp/rows.cpp).
constexpr int64_t kMinRow = 32, kMaxRow = 16384;

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
    // Reductions with what follows them first: else that would be clusters of its own.
    for (NodeId n : order)
      if (!g_.node(n).erased && g_.node(n).op->name == "reduce") changed |= fuse_rows(n) || fuse_tail(n);
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

  // ---- rows: reductions of the last axes together with what is computed from them, both of one shape

  struct Rows {
    Shape full, kept;
    uint32_t axes;
  };
  bool on_cpu(NodeId n) const {
    const CompNode* cn = g_.meta(g_.node(n).outputs[0]).cn;
    return (cn ? cn : CompNode::default_node())->device.kind == DeviceKind::Cpu;
  }
  /// Of rows that a kernel takes: some, of float32, of a length that stays in the cache.
  bool find_rows(NodeId n, Rows* r) const {
    const ir::Node& x = g_.node(n);
    const Meta& m = g_.meta(x.inputs[0]);
    if (x.op->name != "reduce" || !allowed(x) || m.dtype != DType::F32 || !on_cpu(n) || m.shape.numel() == 0)
      return false;
    // Pixels of images may lie channels-last; other rows lie as they are written.
    if (m.shape.rank >= 4 && !reduces(n)) return false;
    r->full = r->kept = m.shape;
    r->axes = reduced_axes(attrs_as<ReduceAttrs>(x.attrs.get()).axes, m.shape.rank);
    int64_t length = 1;
    for (int i = 0; i < m.shape.rank; ++i) {
      const bool reduced = r->axes >> i & 1;
      if (!reduced && length > 1 && m.shape[i] != 1) return false;
      if (reduced) length *= m.shape[i], r->kept[i] = 1;
    }
    return length >= kMinRow && length <= kMaxRow;
  }
  bool of_rows(NodeId n, const Rows& r) const {
    const ir::Node& x = g_.node(n);
    Rows own;
    if (x.op->name == "reduce") return find_rows(n, &own) && own.full == r.full && own.kept == r.kept;
    const Shape& s = g_.meta(x.outputs[0]).shape;
    return eligible(n) && (s == r.full || s == r.kept);
  }
  size_t last_place(const Members& m) const {
    size_t at = 0;
    for (NodeId n : m) at = std::max(at, place_[n]);
    return at;
  }
  /// As `joined`: the members with n, and with whoever reads one of them before the last of them.
  Members joined_rows(const Members& members, NodeId n, const Rows& r) const {
    Members all = members;
    all.push_back(n);
    const size_t place = last_place(all);
    for (size_t i = 0; i < all.size(); ++i)
      for (NodeId u : g_.value(g_.node(all[i]).outputs[0]).users) {
        if (has(all, u) || place_[u] > place) continue;
        if (all.size() == kMaxSteps || !of_rows(u, r)) return {};
        all.push_back(u);
      }
    for (NodeId m : all)  // without its axes nothing in the region can read it
      if (g_.node(m).op->name == "reduce" && !(g_.meta(g_.node(m).outputs[0]).shape == r.kept))
        for (NodeId u : g_.value(g_.node(m).outputs[0]).users)
          if (has(all, u)) return {};
    size_t outputs = 0;
    for (NodeId m : all) outputs += read_outside(m, all);
    if (all.size() > kMaxSteps || outputs > kMaxOutputs || inputs_of(all).size() > kMaxInputs) return {};
    return all;
  }
  /// Whether one pass over memory is worth it: what the ops move one by one, against what the region does. A result
  /// of a region is not written past the cache.
  bool pays(const Members& members, const Rows& r) const {
    auto large = [&](ValueId v) { return g_.meta(v).shape == r.full; };
    double apart = 0, together = 0;
    size_t results = 0;
    for (NodeId n : members) {
      const ir::Node& x = g_.node(n);
      for (ValueId v : x.inputs) apart += large(v);
      apart += large(x.outputs[0]);
      results += large(x.outputs[0]) && read_outside(n, members);
    }
    for (ValueId v : inputs_of(members)) together += large(v);
    together += results > 1 && r.full.numel() > kMaxSharedElements ? 1.5 * static_cast<double>(results) : results;
    return together <= 0.7 * apart;
  }
  bool goes_on(const Members& members) const {
    for (NodeId n : members)
      if (g_.node(n).op->name == "reduce")
        for (NodeId u : g_.value(g_.node(n).outputs[0]).users)
          if (has(members, u)) return true;
    return false;
  }

  bool fuse_rows(NodeId seed) {
    Rows r;
    if (!find_rows(seed, &r)) return false;
    Members members{seed};
    for (bool grew = true; grew;) {
      grew = false;
      auto take = [&](NodeId n) {
        if (n == kNone || has(members, n) || !of_rows(n, r)) return;
        Members more = joined_rows(members, n, r);
        if (more.empty()) return;
        members = std::move(more);
        grew = true;
      };
      for (size_t m = 0; m < members.size() && !grew; ++m) {
        const ir::Node& x = g_.node(members[m]);
        for (ValueId v : x.inputs)
          if (!grew) take(g_.value(v).producer);
        if (grew) break;
        const auto users = g_.value(x.outputs[0]).users;
        for (NodeId u : users)
          if (!grew) take(u);
      }
    }
    if (members.size() < 2 || !goes_on(members) || !pays(members, r)) return false;
    auto last = std::ranges::max_element(members, {}, [&](NodeId n) { return place_[n]; });
    std::swap(*members.begin(), *last);
    replace(members, members[0]);
    return true;
  }

  // ---- any reduction with what follows it, of the shape of its result

  /// The node stands where that of the reduction alone would: what else is read must be there by then.
  bool fuse_tail(NodeId root) {
    if (!reduces(root) || !on_cpu(root)) return false;
    if (g_.meta(g_.node(root).inputs[0]).shape.numel() == 0) return false;  // rows that nobody walks give the identity
    const NodeId last = stands_after(root);
    const Shape& shape = g_.meta(g_.node(root).outputs[0]).shape;
    Members tail;
    auto inside = [&](NodeId n) { return n == root || has(tail, n); };
    auto there = [&](ValueId v) {
      const NodeId p = g_.value(v).producer;
      return p == kNone || inside(p) || (place_[p] < place_[last]);
    };
    std::vector<NodeId> queue{root};
    for (size_t i = 0; i < queue.size(); ++i)
      for (NodeId u : g_.value(g_.node(queue[i]).outputs[0]).users) {
        if (inside(u) || tail.size() + 2 > kMaxSteps / 2 || !eligible(u)) continue;
        const ir::Node& x = g_.node(u);
        if (!(g_.meta(x.outputs[0]).shape == shape) || !std::ranges::all_of(x.inputs, there)) continue;
        tail.push_back(u);
        queue.push_back(u);
      }
    if (tail.empty()) return false;
    Members members = grow(root, place_[last]);
    for (NodeId n : tail)
      if (has(members, n)) return false;
    // What goes into the reduction may be read by what follows it only through it: a kernel does one after the other.
    for (NodeId n : tail)
      for (ValueId v : g_.node(n).inputs)
        if (const NodeId p = g_.value(v).producer; p != kNone && p != root && has(members, p)) return false;
    members.insert(members.end(), tail.begin(), tail.end());
    size_t outputs = 0;
    for (NodeId n : members) outputs += read_outside(n, members);
    if (members.size() > kMaxSteps || outputs > kMaxOutputs || inputs_of(members).size() > kMaxInputs) return false;
    replace(members, last);
    return true;
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
      if (!read_outside(n, members) && !(n == members.back() && results.empty())) continue;
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
