#include "plan/recompute.h"

#include <algorithm>

#include "op/elementwise/fused.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

size_t at(int32_t id) { return static_cast<size_t>(id); }

bool in(const std::vector<int32_t>& ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

bool is_cheap(const ir::Node& x) {
  if (ir::takes_token(*x.op) || x.op->refuses || !x.sizes.empty()) return false;
  if (auto* fused = fused_region(x.attrs.get())) return fused->reduction() < 0;
  return x.op->is(kElementwise) && x.outputs.size() == 1;
}

// Memory of the graph in its order: when which block is there.
class Lives {
 public:
  explicit Lives(const ir::Graph& g) : g_(g), order_(g.order()), place_(g.n_node_ids()), block_(g.n_values(), kNone) {
    for (size_t t = 0; t < order_.size(); ++t) place_[at(order_[t])] = static_cast<int>(t);
    std::vector<bool> outlives(g.n_values());
    for (auto& o : g.outputs()) outlives[at(o.value)] = true;
    for (auto& v : g.vars()) {
      if (v.out == kNone) continue;
      outlives[at(v.out)] = true;
      if (std::ranges::find(assigned_, v.in) == assigned_.end()) assigned_.push_back(v.in);
    }
    std::vector<int64_t> change(order_.size() + 1);
    for (size_t t = 0; t < order_.size(); ++t) {
      const ir::Node& x = g.node(order_[t]);
      Layout l;
      const bool view =
          x.op->view && x.op->view({x.attrs.get(), g.meta(x.inputs[0]).shape,
                                    Layout::contiguous(g.meta(x.inputs[0]).shape), g.meta(x.outputs[0]).shape, &l});
      for (ValueId v : x.inputs)
        if (int b = block_[at(v)]; b != kNone) blocks_[at(b)].last = static_cast<int>(t);
      for (ValueId v : x.outputs) {
        if (view) {
          block_[at(v)] = block_[at(x.inputs[0])];
        } else {
          block_[at(v)] = static_cast<int>(blocks_.size());
          blocks_.push_back({v, static_cast<int>(t), static_cast<int>(t), g.meta(v).bytes(), false});
        }
        if (int b = block_[at(v)]; b != kNone) {
          blocks_[at(b)].escapes |= outlives[at(v)];
          blocks_[at(b)].views |= view;
        }
      }
    }
    for (auto& b : blocks_) {
      if (b.escapes) continue;
      change[at(b.first)] += static_cast<int64_t>(b.bytes);
      change[at(b.last) + 1] -= static_cast<int64_t>(b.bytes);
    }
    int64_t live = 0;
    for (size_t t = 0; t < order_.size(); ++t)
      if ((live += change[t]) > static_cast<int64_t>(peak)) {
        peak = static_cast<size_t>(live);
        when = static_cast<int>(t);
      }
  }

  size_t peak = 0;
  int when = -1;

  struct Block {
    ValueId value;  // that it was made for
    int first, last;
    size_t bytes;
    bool escapes = false, views = false;
  };
  struct Candidate {
    ValueId value;
    NodeId before;  // the first that reads it after the peak
    size_t bytes;
  };
  // The largest first.
  std::vector<Candidate> candidates() const {
    std::vector<Candidate> out;
    for (auto& b : blocks_) {
      if (b.escapes || b.views || b.first >= when || b.last <= when || !is_cheap(g_.node(g_.value(b.value).producer)))
        continue;
      NodeId next = kNone;
      bool read_there = false;
      for (NodeId u : g_.value(b.value).users) {
        read_there |= place_[at(u)] == when;
        if (place_[at(u)] > when && (next == kNone || place_[at(u)] < place_[at(next)])) next = u;
      }
      if (!read_there && next != kNone && can_be_made(g_.value(b.value).producer))
        out.push_back({b.value, next, b.bytes});
    }
    std::ranges::stable_sort(out, std::ranges::greater{}, &Candidate::bytes);
    return out;
  }
  bool is_after_peak(NodeId n) const { return place_[at(n)] > when; }

 private:
  // From what is there at the peak anyhow. State that is assigned meanwhile is not: its memory is taken over.
  bool can_be_made(NodeId n) const {
    for (ValueId v : g_.node(n).inputs) {
      const int b = block_[at(v)];
      if (b == kNone ? std::ranges::find(assigned_, source(v)) != assigned_.end()
                     : !blocks_[at(b)].escapes && blocks_[at(b)].last <= when)
        return false;
    }
    return true;
  }
  // What a chain of views is of.
  ValueId source(ValueId v) const {
    while (g_.value(v).producer != kNone) v = g_.node(g_.value(v).producer).inputs[0];
    return v;
  }

  const ir::Graph& g_;
  std::vector<NodeId> order_;
  std::vector<int> place_, block_;
  std::vector<Block> blocks_;
  std::vector<ValueId> assigned_;
};

}  // namespace

std::vector<NodeId> recompute_for_memory(ir::Graph& g, size_t target) {
  constexpr int kMaxRounds = 64;
  std::vector<NodeId> made;
  ir::Graph best = g.clone();
  size_t lowest = Lives(g).peak, n_best = 0;
  for (int round = 0; round < kMaxRounds && lowest > target; ++round) {
    const Lives lives(g);
    size_t saved = 0;
    std::vector<ValueId> dropped;
    for (auto& c : lives.candidates()) {
      if (lives.peak - saved <= target) break;
      const NodeId old = g.value(c.value).producer;
      const ir::Node& x = g.node(old);
      // One that is dropped in this round cannot be an operand of another.
      const bool apart = std::ranges::none_of(x.inputs, [&](ValueId v) { return in(dropped, v); }) &&
                         std::ranges::none_of(g.value(c.value).users, [&](NodeId u) { return in(made, u); });
      if (!apart) continue;
      const NodeId again = g.add_node(*x.op, x.attrs, {x.inputs.data(), x.inputs.size()}, x.loc, c.before);
      g.stand_for(again, old);
      const ValueId now = g.node(again).outputs[at(g.value(c.value).index)];
      g.place(now, g.meta(c.value).cn);
      const auto users = g.value(c.value).users;  // the list changes
      for (NodeId u : users)
        if (lives.is_after_peak(u))
          for (size_t i = 0; i < g.node(u).inputs.size(); ++i)
            if (g.node(u).inputs[i] == c.value) g.replace_input(u, i, now);
      made.push_back(again);
      dropped.push_back(c.value);
      saved += c.bytes;
    }
    if (!saved) break;
    if (const size_t now = Lives(g).peak; now < lowest) {
      lowest = now;
      best = g.clone();
      n_best = made.size();
    } else {
      break;
    }
  }
  g = std::move(best);
  made.resize(n_best);
  return made;
}

size_t recomputable_bytes(const Program::Impl& p, int home) {
  const int peak = p.homes[static_cast<size_t>(home)].peak, end = static_cast<int>(p.code.size());
  if (peak < 0) return 0;
  auto touches = [&](int t, int buffer) {
    const Instr& c = p.code[static_cast<size_t>(t)];
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i)
      if (p.refs[c.first_arg + i].buffer == buffer) return true;
    return false;
  };
  size_t bytes = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const PlanBuffer& b = p.buffers[i];
    const int buffer = static_cast<int>(i);
    if (b.where != Where::Arena || b.home != home || b.first >= peak || b.last <= peak || touches(peak, buffer))
      continue;
    const Instr& maker = p.code[static_cast<size_t>(b.first)];
    const OpDef* op = maker.args.op;
    if (!maker.kernel || !(op->is(kElementwise) || op->count_outputs) || !touches(b.first, buffer)) continue;
    int next = peak + 1;
    while (next < end && !touches(next, buffer)) ++next;
    bool there = true;  // all that it is made of, when it is needed again
    for (size_t k = 0; k < maker.n_in; ++k) {
      const ArgRef& r = p.refs[maker.first_arg + k];
      const PlanBuffer& from = p.buffers[static_cast<size_t>(r.buffer)];
      there &= r.buffer != buffer && (from.where != Where::Arena || from.last >= next);
    }
    if (there) bytes += b.bytes;
  }
  return bytes;
}

}  // namespace mge
