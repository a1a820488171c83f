#include "pass/fuse_conv_epilogue.h"

#include "op/conv/conv2d.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// The chain below one convolution. `at` is the value fused so far.
struct Chain {
  Graph& g;
  ValueId at;
  ValueId bias = kNone, scale = kNone, shift = kNone, add = kNone;
  std::string act = "none";
  double slope = 0;
  SmallVec<NodeId, 6> nodes = {};

  /// The only reader of v, if it is `op` (any, when that is empty) and gives a value like v.
  NodeId reader(ValueId v, std::string_view op) const {
    const ir::Value& x = g.value(v);
    if (x.users.size() != 1 || g.escapes(v)) return kNone;
    NodeId n = x.users[0];
    if ((!op.empty() && g.node(n).op->name != op) || !g.meta(g.node(n).outputs[0]).same_type(x.meta)) return kNone;
    return n;
  }
  ValueId other(NodeId n, ValueId v) const {
    const auto& in = g.node(n).inputs;
    return in[0] == v ? in[1] : in[0];
  }
  bool per_channel(ValueId v) const {
    const Meta& m = g.meta(v);
    return m.dtype == g.meta(at).dtype && m.shape == Shape{1, g.meta(at).shape[1], 1, 1};
  }
  void take(NodeId n) {
    nodes.push_back(n);
    at = g.node(n).outputs[0];
  }

  void grow() {
    if (bias == kNone) {
      if (NodeId n = reader(at, "add"); n != kNone && per_channel(other(n, at))) {
        bias = other(n, at);
        take(n);
      }
    }
    if (NodeId m = reader(at, "mul"); m != kNone && per_channel(other(m, at))) {
      ValueId product = g.node(m).outputs[0];
      NodeId a = reader(product, "add");
      if (a != kNone && per_channel(other(a, product))) {
        scale = other(m, at);
        shift = other(a, product);
        take(m);
        take(a);
      }
    }
    if (NodeId n = reader(at, "add"); n != kNone && g.meta(other(n, at)).same_type(g.meta(at)) && other(n, at) != at) {
      add = other(n, at);
      take(n);
    }
    const NodeId leaky = reader(at, "prelu");
    if (leaky != kNone && g.node(leaky).inputs[0] == at) {
      const auto number = Rewriter{.g = g}.number(g.node(leaky).inputs[1]);
      if (number) act = "prelu", slope = *number, take(leaky);
    }
    if (NodeId n = reader(at, {}); act == "none" && n != kNone && fusable_act(*g.node(n).op)) {
      act = g.node(n).op->name;
      take(n);
    }
  }
};

bool fuse_one(Graph& g, NodeId conv) {
  const ir::Node& x = g.node(conv);
  const DType t = g.meta(x.outputs[0]).dtype;
  if (t != DType::F32 && t != DType::F64) return false;  // 16-bit convolutions round once, a chain at every step
  Chain c{g, x.outputs[0]};
  bool own_bias = x.inputs.size() > 2;
  if (own_bias && !c.per_channel(x.inputs[2])) return false;
  if (own_bias) c.bias = x.inputs[2];
  c.grow();
  if (c.nodes.empty()) return false;

  Conv2dFusedAttrs f{attrs_as<Conv2dAttrs>(x.attrs.get())};
  f.has_bias = c.bias != kNone;
  f.has_scale = c.scale != kNone;
  f.has_add = c.add != kNone;
  f.act = c.act;
  f.slope = c.slope;
  SmallVec<ValueId, 6> in{x.inputs[0], x.inputs[1]};
  for (ValueId v : {c.bias, c.scale, c.shift, c.add})
    if (v != kNone) in.push_back(v);
  // At the end of the chain every operand is defined.
  NodeId fused = g.add_node(OpRegistry::global().get(Conv2dFusedAttrs::kOp), make_attrs(f), {in.data(), in.size()},
                            x.loc, c.nodes.back());
  g.replace_all_uses(c.at, g.node(fused).outputs[0]);
  g.stand_for(fused, conv);
  for (NodeId n : c.nodes) g.stand_for(fused, n);
  for (size_t i = c.nodes.size(); i-- > 0;) g.erase(c.nodes[i]);
  g.erase(conv);
  return true;
}

}  // namespace

bool fuse_conv_epilogue(Graph& g) {
  const OpDef* conv2d = OpRegistry::global().registered(Conv2dAttrs::kOp);
  bool changed = false;
  for (NodeId n : g.order())
    if (!g.node(n).erased && g.node(n).op == conv2d) changed |= fuse_one(g, n);
  return changed;
}

}  // namespace mge::pass
