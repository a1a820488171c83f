#include "plan/layouts.h"

#include <algorithm>
#include <queue>

#include "kernel/cost.h"
#include "kernel/layouts.h"
#include "kernel/run.h"
#include "kernel/tune.h"

namespace mge {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

const char* order_name(const Shape& s, const Layout& l) {
  if (l.is_contiguous(s)) return "row-major";
  return s.rank >= 3 && l.is_channels_last(s) ? "channels-last" : "strided";
}

namespace {

bool has_channels(const Shape& s) { return s.rank >= 3 && s.rank <= 5; }

Layout ordered(const Shape& s, Order o) {
  return o == Order::ChannelsLast ? Layout::channels_last(s) : Layout::contiguous(s);
}

}  // namespace

void ask_layouts(const Kernel& k, const KernelArgs& a, Order order, TensorArg* in, TensorArg* out) {
  const size_t n = a.in.size();
  SmallVec<Layout, 6> come;
  for (size_t i = 0; i < n; ++i) come.push_back(in[i].layout);
  if (order != Order::AsIs)
    for (size_t i = 0; i < n; ++i)
      if (has_channels(in[i].shape)) in[i].layout = ordered(in[i].shape, order);
  if (k.layouts)
    k.layouts(a, in, out);
  else if (!(k.flags & kStridedInputs))
    for (size_t i = 0; i < n; ++i) ask_row_major(in[i]);
  const bool moves = k.flags & kStridedOutputs;
  // It reads any strides. What is as large as the result is brought into its order first when that was asked for.
  if (k.flags & kStridedInputs)
    for (size_t i = 0; i < n; ++i)
      if (order == Order::AsIs || moves || !k.layouts || a.out.empty() || !(in[i].shape == out[0].shape))
        in[i].layout = come[i];
  if (!moves || order == Order::AsIs || !has_channels(out[0].shape)) return;
  const Layout want = ordered(out[0].shape, order);
  Layout there;
  if (!a.op->view || a.op->view({a.attrs, out[0].shape, want, in[0].shape, &there})) out[0].layout = want;
}

namespace {

// The axis along which memory runs.
int innermost(const Shape& s, const Layout& l) {
  int at = -1;
  for (int i = 0; i < s.rank; ++i)
    if (s[i] > 1 && (at < 0 || std::abs(l.stride[i]) <= std::abs(l.stride[at]))) at = i;
  return at;
}

// Windows that each see one channel.
bool one_channel_windows(const KernelArgs& a) {
  const Shape &x = a.in[0].shape, &y = a.out[0].shape;
  return x.rank == 4 && y.rank == 4 && x[1] == y[1] && y.numel() > 0 &&
         (a.op->is(kComputeBound) || a.op->name.find("pool") != std::string::npos);
}

double moved_ns(const Meta& m, const Layout& from, const Layout& to) {
  return cost::copy_ns(static_cast<double>(m.bytes()), innermost(m.shape, from) != innermost(m.shape, to));
}

class Search {
 public:
  Search(const ir::Graph& g, const std::vector<Layout>& inputs) : g_(g), measured_(kernel_strategy() & kProfile) {
    order_ = g.order();
    nodes_.resize(g.n_node_ids());
    values_.resize(g.n_values());
    for (size_t i = 0; i < order_.size(); ++i) at(order_[i]).place = static_cast<int>(i);
    for (size_t i = 0; i < g.inputs().size(); ++i) {
      const ValueId v = g.inputs()[i];
      value(v).layout = inputs.empty() ? Layout::contiguous(g.meta(v).shape) : inputs[i];
    }
    for (auto& v : g.vars()) value(v.in).layout = Layout::contiguous(g.meta(v.in).shape);
    for (auto& c : g.constants())
      if (c.value != kNone) {
        value(c.value).layout = Layout::contiguous(g.meta(c.value).shape);
        value(c.value).constant = true;
      }
    for (auto& v : g.vars())
      if (v.out != kNone) value(v.out).state = true;
    for (NodeId n : order_) evaluate(n);
    for (NodeId n : order_) at(n).first = at(n).kernel;
    for (size_t v = 0; v < values_.size(); ++v)
      total_ += value(static_cast<ValueId>(v)).ns = copies_ns(static_cast<ValueId>(v));
    for (NodeId n : order_) total_ += at(n).ns;
  }

  double total() const { return total_; }
  Order order(NodeId n) const { return nodes_[static_cast<size_t>(n)].order; }

  /// Kernels that answer differently in the two orders.
  std::vector<NodeId> flexible() {
    std::vector<NodeId> out;
    for (NodeId n : order_) {
      if (!at(n).kernel) continue;
      const Asked r = ask(n, Order::RowMajor), l = ask(n, Order::ChannelsLast);
      bool same = true;
      for (size_t i = 0; i < r.in.size(); ++i) same &= r.in[i].layout.same_strides(r.in[i].shape, l.in[i].layout);
      for (size_t o = 0; o < r.out.size(); ++o) same &= r.out[o].layout.same_strides(r.out[o].shape, l.out[o].layout);
      if (!same) out.push_back(n);
    }
    return out;
  }

  /// Whether it takes images in an order of its own choice, not in any.
  bool is_image_kernel(NodeId n) { return at(n).kernel && !(at(n).kernel->flags & kStridedInputs); }

  /// Whether anything lies, or is wanted, in another order than row-major.
  bool mixed() {
    for (NodeId n : order_) {
      const State& s = at(n);
      for (ValueId v : g_.node(n).outputs)
        if (has_channels(g_.meta(v).shape) && !value(v).layout.is_contiguous(g_.meta(v).shape)) return true;
      for (size_t i = 0; i < s.want.size(); ++i) {
        const Shape& x = g_.meta(g_.node(n).inputs[i]).shape;
        if (has_channels(x) && !s.want[i].is_contiguous(x)) return true;
      }
    }
    return false;
  }

  /// Offers the node another order and keeps it if that saves at least `gain`.
  bool try_order(NodeId n, Order o, double gain) {
    const double before = total_;
    undo_.clear();
    undo_values_.clear();
    remember(n);
    at(n).order = o;
    legal_ = true;
    spread(n);
    if (legal_ && total_ <= before - gain) return true;
    for (size_t i = undo_.size(); i-- > 0;) at(undo_[i].first) = std::move(undo_[i].second);
    for (size_t i = undo_values_.size(); i-- > 0;) value(undo_values_[i].first) = undo_values_[i].second;
    total_ = before;
    return false;
  }

 private:
  struct Asked {
    SmallVec<TensorArg, 6> in, out;
  };
  struct State {
    const Kernel *kernel = nullptr, *first = nullptr;  // first: as eager execution would choose
    Order order = Order::AsIs;
    int place = 0;
    double ns = 0;
    SmallVec<Layout, 4> want;  // per operand; empty: whatever there is
  };
  struct Lies {
    Layout layout;
    bool constant = false, state = false;
    double ns = 0;  // of copies for its readers
  };

  const ir::Graph& g_;
  std::vector<NodeId> order_;
  std::vector<State> nodes_;
  std::vector<Lies> values_;
  std::vector<std::pair<NodeId, State>> undo_;
  std::vector<std::pair<ValueId, Lies>> undo_values_;
  double total_ = 0;
  bool measured_, legal_ = true;

  State& at(NodeId n) { return nodes_[static_cast<size_t>(n)]; }
  Lies& value(ValueId v) { return values_[static_cast<size_t>(v)]; }

  void remember(NodeId n) { undo_.emplace_back(n, at(n)); }

  KernelArgs fill(NodeId n, Asked& x) {
    const ir::Node& node = g_.node(n);
    auto arg = [&](const Meta& m, const Layout& l) {
      TensorArg t;
      t.dtype = m.dtype;
      t.shape = m.shape;
      t.layout = l;
      t.layout.offset = 0;
      t.quant = m.quant;
      return t;
    };
    for (ValueId v : node.inputs) x.in.push_back(arg(g_.meta(v), value(v).layout));
    for (ValueId v : node.outputs) x.out.push_back(arg(g_.meta(v), Layout::contiguous(g_.meta(v).shape)));
    KernelArgs a{node.op, node.attrs.get(), {x.in.data(), x.in.size()}, {x.out.data(), x.out.size()}, nullptr};
    if (!node.outputs.empty()) a.device = device_of(g_.meta(node.outputs[0])).kind;
    return a;
  }
  Asked ask(NodeId n, Order o) {
    Asked x;
    const KernelArgs a = fill(n, x);
    ask_layouts(*at(n).kernel, a, o, x.in.data(), x.out.data());
    return x;
  }

  // Where its results lie, what it needs and what it costs.
  void evaluate(NodeId n) {
    const ir::Node& x = g_.node(n);
    State& s = at(n);
    s.kernel = nullptr;
    s.want.clear();
    s.ns = 0;
    auto plain = [&] {
      for (ValueId v : x.outputs) value(v).layout = Layout::contiguous(g_.meta(v).shape), value(v).constant = false;
    };
    if (x.outputs.empty()) return;
    if (x.inputs.size() == 1 && queue_of(g_.meta(x.inputs[0])) != queue_of(g_.meta(x.outputs[0]))) {
      s.want.push_back(Layout::contiguous(g_.meta(x.inputs[0]).shape));
      return plain();
    }
    if (x.op->view) {
      const Lies& from = value(x.inputs[0]);
      Layout l;
      if (x.op->view({x.attrs.get(), g_.meta(x.inputs[0]).shape, from.layout, g_.meta(x.outputs[0]).shape, &l})) {
        value(x.outputs[0]).layout = l;
        value(x.outputs[0]).constant = from.constant;
        return;
      }
    }
    Asked a;
    KernelArgs args = fill(n, a);
    s.kernel = KernelRegistry::global().choose(args, nullptr);
    if (!s.kernel) return plain();  // it runs as its parts
    ask_layouts(*s.kernel, args, s.order, a.in.data(), a.out.data());
    for (auto& t : a.in) s.want.push_back(t.layout);
    for (size_t o = 0; o < x.outputs.size(); ++o)
      value(x.outputs[o]).layout = a.out[o].layout, value(x.outputs[o]).constant = false;
    s.ns = kernel_ns(*s.kernel, args);
  }

  double kernel_ns(const Kernel& k, const KernelArgs& a) const {
    if (measured_ && !(k.flags & kStridedOutputs) && !a.op->is(kEffect) && !a.op->is(kRandom))
      if (const double ns = measured_ns(k, a); ns > 0) return ns;
    double ns = cost::run_ns(a);
    if (a.out.empty()) return ns;
    auto meta = [](const TensorArg& t) {
      Meta m;
      m.dtype = t.dtype;
      m.shape = t.shape;
      return m;
    };
    const TensorArg& y = a.out[0];
    if (k.flags & kStridedOutputs) {
      ns = 0;
      for (auto& t : a.in)
        ns += t.shape.rank == y.shape.rank ? moved_ns(meta(t), t.layout, y.layout)
                                           : moved_ns(meta(y), Layout::contiguous(y.shape), y.layout);
      return ns;
    }
    if (k.flags & kStridedInputs) {
      for (auto& t : a.in)
        if (t.shape == y.shape && !t.layout.same_strides(t.shape, y.layout) &&
            innermost(t.shape, t.layout) != innermost(y.shape, y.layout))
          ns += cost::read_across_ns(static_cast<double>(meta(t).bytes()));
      return ns;
    }
    return k.layouts && !a.in.empty() && one_channel_windows(a) ? cost::windows_ns(a) : ns;
  }

  // One copy for each order that readers want.
  double copies_ns(ValueId v) {
    const Lies& x = value(v);
    const Meta& m = g_.meta(v);
    const ir::Value& node = g_.value(v);
    if (node.erased || m.shape.numel() < 2) return 0;
    SmallVec<Layout, 2> made;
    double ns = 0;
    auto want = [&](const Layout& l) {
      if (l.same_strides(m.shape, x.layout)) return;
      for (auto& o : made)
        if (o.same_strides(m.shape, l)) return;
      made.push_back(l);
      // Of a constant it is made once; it takes memory all the same.
      ns += x.constant ? 1 : cost::kCopyCallNs + moved_ns(m, x.layout, l);
    };
    for (NodeId u : node.users) {
      const State& s = at(u);
      if (s.want.empty()) continue;
      const ir::Node& reader = g_.node(u);
      for (size_t i = 0; i < reader.inputs.size(); ++i)
        if (reader.inputs[i] == v) want(s.want[i]);
    }
    if (x.state) want(Layout::contiguous(m.shape));  // state lies row-major between runs
    return ns;
  }

  // Evaluates the node, and whoever reads results that now lie otherwise, in order.
  void spread(NodeId from) {
    std::priority_queue<std::pair<int, NodeId>, std::vector<std::pair<int, NodeId>>, std::greater<>> next;
    next.push({at(from).place, from});
    std::vector<ValueId> touched;
    NodeId last = kNone;
    while (!next.empty()) {
      const NodeId n = next.top().second;
      next.pop();
      if (n == last) continue;
      last = n;
      const ir::Node& x = g_.node(n);
      if (n != from) remember(n);
      SmallVec<Lies, 2> was;
      for (ValueId v : x.outputs) was.push_back(value(v));
      total_ -= at(n).ns;
      evaluate(n);
      total_ += at(n).ns;
      // The kernel eager execution chooses, or other bits might come out.
      if (at(n).kernel && at(n).first && at(n).kernel != at(n).first) legal_ = false;
      touched.insert(touched.end(), x.inputs.begin(), x.inputs.end());
      for (size_t o = 0; o < x.outputs.size(); ++o) {
        const ValueId v = x.outputs[o];
        if (value(v).layout.same_strides(g_.meta(v).shape, was[o].layout) && value(v).constant == was[o].constant)
          continue;
        undo_values_.emplace_back(v, was[o]);
        touched.push_back(v);
        for (NodeId u : g_.value(v).users) next.push({at(u).place, u});
      }
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (ValueId v : touched) {
      const double ns = copies_ns(v);
      if (ns == value(v).ns) continue;
      undo_values_.emplace_back(v, value(v));
      total_ += ns - value(v).ns;
      value(v).ns = ns;
    }
  }
};

constexpr int kSweeps = 3;
constexpr double kGain = 1;  // ns; less is the noise of sums
constexpr double kAnyCost = -1e30;
constexpr size_t kManyNodes = 2000;  // from here on one start has to do

// Whoever keeps the order of what it is given follows, so one change moves everything up to the next kernel that has
// its own mind: single changes reach what regions would.
void climb(Search& s, const std::vector<NodeId>& open) {
  bool better = true;
  for (int sweep = 0; sweep < kSweeps && better; ++sweep) {
    better = false;
    for (NodeId n : open)
      for (Order o : {Order::RowMajor, Order::ChannelsLast, Order::AsIs})
        if (o != s.order(n)) better |= s.try_order(n, o, kGain);
  }
}

}  // namespace

Orders assign_layouts(const ir::Graph& g, const std::vector<Layout>& inputs, OrderTarget target) {
  Orders out;
  if (target == OrderTarget::Local) return out;
  Search base(g, inputs);
  out.local_ns = out.ns = base.total();
  const std::vector<NodeId> nodes = base.flexible();
  // Elementwise ops alone have nothing to gain by another order.
  if (!base.mixed() && std::ranges::none_of(nodes, [&](NodeId n) { return base.is_image_kernel(n); })) return out;
  std::vector<NodeId> open;
  for (NodeId n : nodes)
    if (target != OrderTarget::ChannelsLast || !base.is_image_kernel(n) ||
        !base.try_order(n, Order::ChannelsLast, kAnyCost))
      open.push_back(n);
  auto keep = [&](const Search& s) {
    out.ns = s.total();
    out.changed = 0;
    out.by_node.assign(g.n_node_ids(), Order::AsIs);
    for (NodeId n : nodes) {
      out.by_node[static_cast<size_t>(n)] = s.order(n);
      out.changed += s.order(n) != Order::AsIs;
    }
  };
  // From what every kernel decides for itself, and from either order throughout: two neighbours may each lose by what
  // both gain by.
  for (Order start : {Order::AsIs, Order::ChannelsLast, Order::RowMajor}) {
    Search s = base;
    if (start != Order::AsIs)
      for (NodeId n : open) s.try_order(n, start, kAnyCost);
    climb(s, open);
    if (start == Order::AsIs || s.total() < out.ns - kGain) keep(s);
    if (nodes.size() > kManyNodes) break;
  }
  return out;
}

}  // namespace mge
