#include "pass/fuse_batch_norm.h"

#include <algorithm>

#include "op/norm/batch_norm.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

class Fuser {
 public:
  explicit Fuser(Graph& g) : g_(g), order_(g.order()), place_(g.n_node_ids()) {
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
  }

  bool run() {
    bool changed = false;
    // Backward first: an activation whose gradient reads its input lets go of that.
    for (NodeId n : order_)
      if (is(n, "batch_norm_bwd")) changed |= fuse_backward(n);
    for (NodeId n : order_)
      if (is(n, "batch_norm_train")) changed |= fuse_forward(n);
    return changed;
  }

 private:
  bool is(NodeId n, std::string_view op) const { return n != kNone && !g_.node(n).erased && g_.node(n).op->name == op; }
  NodeId producer(ValueId v) const { return g_.value(v).producer; }
  /// The only reader of v, or kNone.
  NodeId reader(ValueId v) const {
    const ir::Value& x = g_.value(v);
    return x.users.size() == 1 && !g_.escapes(v) ? x.users[0] : kNone;
  }
  const NormAct* activation(NodeId n, std::string_view NormAct::*name) const {
    if (n == kNone || g_.node(n).erased) return nullptr;
    auto at = std::ranges::find(kNormActs, std::string_view(g_.node(n).op->name), name);
    return at == std::end(kNormActs) ? nullptr : at;
  }

  // batch_norm_bwd(x, g, w, mean, rstd) with g = act_grad(act(y) or y, gy), y and the statistics of one batch norm.
  bool fuse_backward(NodeId n) {
    const ir::Node bwd = g_.node(n);
    const ValueId x = bwd.inputs[0], g = bwd.inputs[1];
    const NodeId slope = producer(g);
    const NormAct* act = activation(slope, &NormAct::grad);
    if (g_.meta(x).dtype != DType::F32 || !act || reader(g) != n) return false;
    // Kernels of the CPU compute y again with the bits it had. Elsewhere that is done by parts, which round otherwise.
    if (g_.meta(x).cn && g_.meta(x).cn->queue) return false;
    ValueId y = g_.node(slope).inputs[0];
    if (act->of_output) {
      const NodeId at = producer(y);
      if (!is(at, act->name)) return false;
      y = g_.node(at).inputs[0];
    }
    const NodeId norm = producer(y);
    if (!is(norm, "batch_norm_train")) return false;
    const ir::Node& fwd = g_.node(norm);
    const bool same = fwd.outputs[0] == y && fwd.inputs[0] == x && fwd.inputs[1] == bwd.inputs[2] &&
                      fwd.outputs[1] == bwd.inputs[3] && fwd.outputs[3] == bwd.inputs[4];
    // What follows a mean over the image is one number for each: canonicalise lets its reader stretch it.
    if (!same || !g_.meta(g_.node(slope).inputs[1]).same_type(g_.meta(x))) return false;
    const ValueId in[] = {x, g_.node(slope).inputs[1], bwd.inputs[2], bwd.inputs[3], bwd.inputs[4], fwd.inputs[2]};
    const NodeId fused = g_.add_node(OpRegistry::global().get("batch_norm_fused_bwd"),
                                     make_attrs(BatchNormFusedBwdAttrs{std::string(act->name)}), in, bwd.loc, n);
    g_.stand_for(fused, slope);
    take_over(n, fused, bwd.outputs);
    g_.erase(slope);
    return true;
  }

  bool fuse_forward(NodeId n) {
    const ir::Node norm = g_.node(n);
    if (g_.meta(norm.inputs[0]).dtype != DType::F32) return false;
    BatchNormFusedAttrs at{attrs_as<BatchNormAttrs>(norm.attrs.get())};
    SmallVec<ValueId, 4> in(norm.inputs.begin(), norm.inputs.end());
    SmallVec<NodeId, 2> taken;
    ValueId y = norm.outputs[0];
    if (const NodeId sum = reader(y); is(sum, "add")) {
      const auto& two = g_.node(sum).inputs;
      const ValueId other = two[0] == y ? two[1] : two[0];
      // The node stands where the batch norm stood, since its statistics are read from there on.
      const NodeId from = producer(other);
      const bool there = from == kNone || place_[from] < place_[n];
      if (other == y || !there || !g_.meta(other).same_type(g_.meta(y))) return false;
      at.has_add = true;
      in.push_back(other);
      taken.push_back(sum);
      y = g_.node(sum).outputs[0];
    }
    if (const NodeId a = reader(y); activation(a, &NormAct::name)) {
      at.act = g_.node(a).op->name;
      taken.push_back(a);
      y = g_.node(a).outputs[0];
    }
    if (taken.empty()) return false;
    const NodeId fused = g_.add_node(OpRegistry::global().get("batch_norm_fused"), make_attrs(std::move(at)),
                                     {in.data(), in.size()}, norm.loc, n);
    g_.replace_all_uses(y, g_.node(fused).outputs[0]);
    g_.stand_for(fused, n);
    for (NodeId t : taken) g_.stand_for(fused, t);
    for (size_t i = taken.size(); i-- > 0;) g_.erase(taken[i]);
    take_over(n, fused, norm.outputs, 1);
    return true;
  }

  // Results from `first` on of `old` are those of `fused`, and `old` goes.
  template <class Outputs>
  void take_over(NodeId old, NodeId fused, const Outputs& outputs, size_t first = 0) {
    place_.resize(g_.n_node_ids(), place_[old]);
    g_.set_rerun(fused, g_.node(old).rerun);
    g_.stand_for(fused, old);
    for (size_t o = first; o < outputs.size(); ++o) g_.replace_all_uses(outputs[o], g_.node(fused).outputs[o]);
    g_.erase(old);
  }

  Graph& g_;
  std::vector<NodeId> order_;
  std::vector<size_t> place_;  // by node; a fused one has that of the batch norm
};

}  // namespace

bool fuse_batch_norm(Graph& g) { return Fuser(g).run(); }

}  // namespace mge::pass
