#include "plan/schedule.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "core/shape.h"
#include "plan/memory.h"
#include "plan/refusals.h"

namespace mge {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Scheduler {
 public:
  explicit Scheduler(const ir::Graph& g) : g_(g), order_(g.order()) {
    find_edges();
    refuse_first();
    find_blocks();
  }

  const std::vector<NodeId>& order() const { return order_; }

  // Walks the order, and whenever a node has become free to run that leaves less in use than before, runs it first.
  std::vector<NodeId> eager_to_free() const {
    std::vector<NodeId> out;
    std::vector<int> waits = n_before_;
    std::vector<std::vector<NodeId>> readers = readers_;  // that have not run, per block
    std::vector<bool> ran(g_.n_node_ids());
    std::deque<NodeId> now;
    auto frees = [&](NodeId n) {
      size_t freed = 0;
      for (int b : reads_[at(n)])
        if (readers[at(b)].size() == 1) freed += bytes_[at(b)];
      return freed > 0 && freed >= made_[at(n)] && !stays_[at(n)];
    };
    auto consider = [&](NodeId n) {
      if (!ran[at(n)] && waits[at(n)] == 0 && frees(n)) now.push_back(n);
    };
    auto run = [&](NodeId n) {
      if (ran[at(n)]) return;
      ran[at(n)] = true;
      out.push_back(n);
      for (int b : reads_[at(n)]) {
        std::erase(readers[at(b)], n);
        if (readers[at(b)].size() == 1) consider(readers[at(b)][0]);
      }
      for (NodeId after : after_[at(n)]) {
        --waits[at(after)];
        consider(after);
      }
    };
    for (NodeId n : order_) {
      run(n);
      while (!now.empty()) {
        const NodeId next = now.front();
        now.pop_front();
        if (waits[at(next)] == 0 && frees(next)) run(next);
      }
    }
    return out;
  }

  // Walks it backwards, and lets wait what makes more than it frees until the first that reads it.
  std::vector<NodeId> late_to_make(const std::vector<NodeId>& order) const {
    std::vector<size_t> place(g_.n_node_ids());  // counted from the end
    std::vector<NodeId> back;                    // the last first
    std::vector<int> last_reader(bytes_.size(), kNone);
    for (NodeId n : order)
      for (int b : reads_[at(n)]) last_reader[at(b)] = n;
    for (size_t i = order.size(); i-- > 0;) {
      const NodeId n = order[i];
      size_t freed = 0;
      for (int b : reads_[at(n)])
        if (last_reader[at(b)] == n) freed += bytes_[at(b)];
      size_t first = 0;  // the earliest that must come after it
      for (NodeId after : after_[at(n)]) first = std::max(first, place[at(after)] + 1);
      const bool waits = !stays_[at(n)] && made_[at(n)] > freed && !after_[at(n)].empty();
      back.insert(waits ? back.begin() + static_cast<int64_t>(first) : back.end(), n);
      if (waits && first < back.size() - 1)
        for (size_t k = first; k < back.size(); ++k) place[at(back[k])] = k;
      place[at(n)] = waits ? first : back.size() - 1;
    }
    std::reverse(back.begin(), back.end());
    return back;
  }

  // Most bytes in use at once. A result that can take the place of an operand that dies needs none.
  size_t peak(const std::vector<NodeId>& order) const {
    std::vector<size_t> left(bytes_.size());
    for (size_t b = 0; b < bytes_.size(); ++b) left[b] = readers_[b].size();
    size_t live = 0, most = 0;
    for (NodeId n : order) {
      size_t freed = 0, reused = 0;
      for (int b : reads_[at(n)])
        if (--left[at(b)] == 0) {
          freed += bytes_[at(b)];
          if (bytes_[at(b)] == made_[at(n)] && in_place(n)) reused = made_[at(n)];
        }
      live += made_[at(n)];
      most = std::max(most, live - reused);
      live -= freed + unread_[at(n)];
    }
    return most;
  }

 private:
  bool in_place(NodeId n) const { return g_.node(n).op->is(kElementwise) || g_.node(n).op->count_outputs; }

  // Values that are views of one another are one block of memory; those that come from outside or outlive the run are
  // none of ours.
  void find_blocks() {
    std::vector<int> block(g_.n_values(), kNone);
    reads_.resize(g_.n_node_ids());
    made_.resize(g_.n_node_ids());
    unread_.resize(g_.n_node_ids());
    std::vector<bool> outlives(g_.n_values());
    for (auto& o : g_.outputs()) outlives[at(o.value)] = true;
    for (auto& v : g_.vars())
      if (v.out != kNone) outlives[at(v.out)] = true;
    for (NodeId n : order_) {
      const ir::Node& x = g_.node(n);
      for (ValueId v : x.inputs)
        if (int b = block[at(v)];
            b != kNone && std::find(reads_[at(n)].begin(), reads_[at(n)].end(), b) == reads_[at(n)].end()) {
          reads_[at(n)].push_back(b);
          readers_[at(b)].push_back(n);
        }
      if (is_view(x)) {
        const int b = block[at(x.outputs[0])] = block[at(x.inputs[0])];
        if (b != kNone && outlives[at(x.outputs[0])]) bytes_[at(b)] = 0;
        continue;
      }
      for (ValueId v : x.outputs) {
        block[at(v)] = static_cast<int>(bytes_.size());
        bytes_.push_back(outlives[at(v)] ? 0 : (g_.meta(v).bytes() + kMemAlign - 1) / kMemAlign * kMemAlign);
        readers_.emplace_back();
        makers_.push_back(n);
      }
    }
    for (size_t b = 0; b < bytes_.size(); ++b) {
      made_[at(makers_[b])] += bytes_[b];
      if (readers_[b].empty()) unread_[at(makers_[b])] += bytes_[b];
    }
  }
  bool is_view(const ir::Node& x) const {
    if (!x.op->view) return false;
    Layout l;
    const Shape &from = g_.meta(x.inputs[0]).shape, &to = g_.meta(x.outputs[0]).shape;
    return x.op->view({x.attrs.get(), from, Layout::contiguous(from), to, &l});
  }

  void find_edges() {
    n_before_.resize(g_.n_node_ids());
    after_.resize(g_.n_node_ids());
    stays_.resize(g_.n_node_ids());
    std::vector<size_t> place(g_.n_node_ids());
    for (size_t i = 0; i < order_.size(); ++i) place[at(order_[i])] = i;
    for (NodeId n : order_) {
      const ir::Node& x = g_.node(n);
      stays_[at(n)] = ir::takes_token(*x.op);
      for (ValueId v : x.inputs) {
        const NodeId p = g_.value(v).producer;
        edge(p, n);
        stays_[at(n)] = stays_[at(n)] || (p != kNone && g_.node(p).op->is(kEffect));
      }
      for (auto& u : x.sizes) edge(g_.value(u.value).producer, n);
      if (x.token_in != kNone) edge(g_.value(x.token_in).producer, n);
      // Between devices: each waits for the other there.
      if (!x.inputs.empty() && !x.outputs.empty() && g_.meta(x.inputs[0]).cn != g_.meta(x.outputs[0]).cn)
        stays_[at(n)] = true;
    }
    for (auto& v : g_.vars()) {
      const NodeId updater = v.out == kNone ? kNone : g_.value(v.out).producer;
      if (updater == kNone) continue;
      for (NodeId reader : g_.value(v.in).users)
        if (place[at(reader)] < place[at(updater)]) edge(reader, updater);
    }
  }

  // What may refuse a value comes before the first assignment of state, as far as it does not depend on it: then state
  // may be written over, and is whole when the run fails (Program::Impl::settled).
  void refuse_first() {
    constexpr size_t kMaxEdges = 1 << 18;  // beyond, state that is assigned before gets other memory
    const Refusals may(g_);
    std::vector<NodeId> updaters;
    for (auto& v : g_.vars())
      if (v.out != kNone && g_.value(v.out).producer != kNone) updaters.push_back(g_.value(v.out).producer);
    std::ranges::sort(updaters);
    updaters.erase(std::ranges::unique(updaters).begin(), updaters.end());
    if (may.all().empty() || updaters.empty() || may.all().size() * updaters.size() > kMaxEdges) return;
    std::vector<bool> needed(g_.n_node_ids());  // by something that may refuse, or it itself
    for (NodeId n : may.all()) needed[at(n)] = true;
    for (size_t i = order_.size(); i-- > 0;)
      for (NodeId after : after_[at(order_[i])])
        if (needed[at(after)]) needed[at(order_[i])] = true;
    bool late = false;
    std::vector<size_t> place(g_.n_node_ids());
    for (size_t i = 0; i < order_.size(); ++i) place[at(order_[i])] = i;
    for (NodeId u : updaters)
      if (!needed[at(u)])
        for (NodeId n : may.all()) {
          edge(n, u);
          late |= place[at(n)] > place[at(u)];
        }
    if (late) sort_again(place);
  }
  // By the edges; of those that may come next the first of the recorded order.
  void sort_again(const std::vector<size_t>& place) {
    std::vector<int> waits = n_before_;
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (NodeId n : order_)
      if (!waits[at(n)]) ready.push(place[at(n)]);
    std::vector<NodeId> out;
    while (!ready.empty()) {
      const NodeId n = order_[ready.top()];
      ready.pop();
      out.push_back(n);
      for (NodeId after : after_[at(n)])
        if (--waits[at(after)] == 0) ready.push(place[at(after)]);
    }
    MGE_ASSERT(out.size() == order_.size(), "{} of {} nodes of graph {} can be ordered", out.size(), order_.size(),
               g_.name());
    order_ = std::move(out);
  }
  void edge(NodeId from, NodeId to) {
    if (from == kNone || from == to) return;
    after_[at(from)].push_back(to);
    ++n_before_[at(to)];
  }

  const ir::Graph& g_;
  std::vector<NodeId> order_;
  // Per block of memory: its size (0: not in the arena), who makes it, who reads it.
  std::vector<size_t> bytes_;
  std::vector<NodeId> makers_;
  std::vector<std::vector<NodeId>> readers_;
  // Per node: blocks it reads, bytes it makes, those of them nobody reads; nodes that come after it, how many before.
  std::vector<SmallVec<int, 4>> reads_;
  std::vector<size_t> made_, unread_;
  std::vector<std::vector<NodeId>> after_;
  std::vector<int> n_before_;
  std::vector<bool> stays_;
};

}  // namespace

ScheduleReport schedule_for_memory(ir::Graph& g) {
  const Scheduler s(g);
  ScheduleReport r;
  r.before = r.after = s.peak(s.order());
  std::vector<NodeId> best;
  if (s.order() != g.order()) best = s.order();
  auto keep = [&](std::vector<NodeId> order) {
    const size_t peak = s.peak(order);
    if (peak >= r.after) return;
    r.after = peak;
    best = std::move(order);
  };
  const std::vector<NodeId> first = s.eager_to_free();
  keep(s.late_to_make(first));
  keep(first);
  keep(s.late_to_make(s.order()));
  if ((r.changed = !best.empty())) g.reorder(best);
  return r;
}

}  // namespace mge
