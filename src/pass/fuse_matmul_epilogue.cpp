#include "pass/fuse_matmul_epilogue.h"

#include "op/matmul/matmul.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr size_t kMaxSteps = 8, kMaxOperands = 4;

class Fuser {
 public:
  explicit Fuser(Graph& g) : g_(g), order_(g.order()), place_(g.n_node_ids()) {
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
  }

  bool run() {
    const OpDef* matmul = OpRegistry::global().registered("matmul");
    bool changed = false;
    for (NodeId n : order_)
      if (!g_.node(n).erased && g_.node(n).op == matmul) changed |= fuse(n);
    return changed;
  }

 private:
  // The steps below one product; `at` is the value fused so far.
  struct Chain {
    NodeId product;
    ValueId at;
    MatmulSteps steps = {};
    SmallVec<ValueId, 4> operands = {};
    SmallVec<NodeId, 8> nodes = {};
  };

  /// Whether v is there before the product, and lies as an operand of a step may.
  bool fits(const Chain& c, ValueId v) const {
    const NodeId from = g_.value(v).producer;
    const Meta &m = g_.meta(v), &y = g_.meta(c.at);
    return (from == kNone || place_[from] < place_[c.product]) && m.dtype == y.dtype && m.cn == y.cn &&
           step_operand(m.shape, y.shape) != StepOperand::None;
  }

  bool grow(Chain& c) const {
    const ir::Value& y = g_.value(c.at);
    if (y.users.size() != 1 || g_.escapes(c.at) || c.steps.size() == kMaxSteps) return false;
    const NodeId n = y.users[0];
    const ir::Node& x = g_.node(n);
    if (!fusable_step(*x.op) || !g_.meta(x.outputs[0]).same_type(y.meta)) return false;
    MatmulStep step{x.op, {}};
    for (ValueId v : x.inputs) {
      if (v == c.at) {
        step.args.push_back(MatmulStep::kProduct);
        continue;
      }
      if (!fits(c, v)) return false;
      const auto* known = std::find(c.operands.begin(), c.operands.end(), v);
      const auto k = known - c.operands.begin();
      if (known == c.operands.end()) {
        if (c.operands.size() == kMaxOperands) return false;
        c.operands.push_back(v);
      }
      step.args.push_back(static_cast<int>(k));
    }
    c.steps.push_back(std::move(step));
    c.nodes.push_back(n);
    c.at = x.outputs[0];
    return true;
  }

  bool fuse(NodeId n) {
    const ir::Node x = g_.node(n);
    if (g_.meta(x.outputs[0]).dtype != DType::F32) return false;  // 16-bit products round once, a chain at every step
    Chain c{n, x.outputs[0]};
    while (grow(c)) {
    }
    if (c.nodes.empty()) return false;
    MatmulFusedAttrs f{attrs_as<MatmulAttrs>(x.attrs.get())};
    f.has_bias = x.inputs.size() > 2;
    f.steps = print_steps(c.steps);
    SmallVec<ValueId, 8> in(x.inputs.begin(), x.inputs.end());
    for (ValueId v : c.operands) in.push_back(v);
    // Where the product stood: every operand is there, and no other value lives longer.
    const NodeId fused = g_.add_node(OpRegistry::global().get("matmul_fused"), make_attrs(std::move(f)),
                                     {in.data(), in.size()}, x.loc, n);
    g_.set_rerun(fused, x.rerun);
    place_.resize(g_.n_node_ids(), place_[n]);
    g_.replace_all_uses(c.at, g_.node(fused).outputs[0]);
    g_.stand_for(fused, n);
    for (NodeId t : c.nodes) g_.stand_for(fused, t);
    for (size_t i = c.nodes.size(); i-- > 0;) g_.erase(c.nodes[i]);
    g_.erase(n);
    return true;
  }

  Graph& g_;
  std::vector<NodeId> order_;
  std::vector<size_t> place_;  // by node; a fused one has that of its product
};

}  // namespace

bool fuse_matmul_epilogue(Graph& g) { return Fuser(g).run(); }

}  // namespace mge::pass
