#include "pass/canonicalise.h"

#include <algorithm>

#include "op/elementwise/typecvt.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// ---- views

bool is_reshape(const OpDef* op) {
  return op && (op->name == "reshape" || op->name == "flatten" || op->name == "expand_dims" || op->name == "squeeze");
}

// A reshape of a strided tensor may copy, which a reshape of its own view would not: whoever reads it would see other
// strides, and products choose their kernel by them.
bool strided(const Rewriter& r, ValueId v) {
  const OpDef* op = r.g.producer_op(v);
  return op && op->is(kView) && op->name != "copy";
}

// reshape(reshape(x)) is one reshape, and none where the shape comes back.
ValueId merge_reshapes(Rewriter& r) {
  const ValueId x = r.in(0);
  if (is_quant(r.meta().dtype)) return kNone;
  if (r.bound && r.same_as(x)) return x;
  const OpDef* inner = r.g.producer_op(x);
  if (!is_reshape(inner)) return kNone;
  ValueId root = x;
  while (is_reshape(r.g.producer_op(root))) root = r.g.node(r.g.value(root).producer).inputs[0];
  if (strided(r, root)) return kNone;
  if (r.bound && r.g.meta(root).same_type(r.meta())) return root;
  if (r.node().op->name == "reshape") {  // keeps its sizes, whatever they will be
    r.g.replace_input(r.n, 0, root);
    erase_unread(r.g, r.g.value(x).producer);
    return r.node().outputs[0];
  }
  if (!r.bound) return kNone;
  return r.emit("reshape", make_attrs(ShapeAttrs{to_ints(r.meta().shape)}), {root});
}

ValueId merge_transposes(Rewriter& r) {
  const Ints& perm = attrs_as<PermAttrs>(r.node().attrs.get()).perm;
  auto identity = [](const Ints& p) {
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] != static_cast<int64_t>(i)) return false;
    return true;
  };
  if (identity(perm)) return r.in(0);
  const NodeId inner = r.made_by(r.in(0), "transpose");
  if (inner == kNone) return kNone;
  const Ints& first = attrs_as<PermAttrs>(r.g.node(inner).attrs.get()).perm;
  Ints both;
  for (int64_t p : perm) both.push_back(first[static_cast<size_t>(p)]);
  const ValueId root = r.g.node(inner).inputs[0];
  return identity(both) ? root : r.emit("transpose", make_attrs(PermAttrs{both}), {root});
}

ValueId merge_broadcasts(Rewriter& r) {
  if (r.bound && r.same_as(r.in(0))) return r.in(0);
  const ValueId x = r.of(r.in(0), "broadcast_to");
  if (x == kNone) return kNone;
  const NodeId was = r.g.value(r.in(0)).producer;
  r.g.replace_input(r.n, 0, x);
  erase_unread(r.g, was);
  return r.node().outputs[0];
}

ValueId whole_slice(Rewriter& r) {
  if (!r.bound || !r.same_as(r.in(0))) return kNone;
  const SliceAttrs a = resolved_slice(attrs_as<SliceAttrs>(r.node().attrs.get()), r.g.meta(r.in(0)).shape);
  for (size_t i = 0; i < a.axes.size(); ++i)
    if (a.starts[i] != 0 || a.steps[i] != 1) return kNone;
  return r.in(0);
}

ValueId same_shape(Rewriter& r) { return r.bound && r.same_as(r.in(0)) ? r.in(0) : kNone; }
ValueId the_same(Rewriter& r) { return r.in(0); }

ValueId same_device(Rewriter& r) { return r.meta().cn && r.meta().cn == r.g.meta(r.in(0)).cn ? r.in(0) : kNone; }

ValueId concat_of_one(Rewriter& r) { return r.node().inputs.size() == 1 ? r.in(0) : kNone; }

// Channels that are joined and then shuffled, reshape(transpose(reshape(concat(x, y)))), are written once, where they
// end: concat(x[N,C,1,H,W], y[N,C,1,H,W]) along the axis of groups is the result in another shape.
ValueId shuffled_concat(Rewriter& r) {
  if (!r.bound || is_quant(r.meta().dtype)) return kNone;
  const auto only = [&](ValueId v, std::string_view op) {  // the node that makes v for one reader
    const NodeId n = r.made_by(v, op);
    return n == kNone || r.g.escapes(v) || r.g.value(v).users.size() != 1 ? kNone : n;
  };
  const auto input = [&](NodeId n) { return r.g.node(n).inputs[0]; };
  const NodeId turned = only(r.in(0), "transpose");
  if (turned == kNone) return kNone;
  const NodeId split = only(input(turned), "reshape");
  if (split == kNone) return kNone;
  const NodeId joined = only(input(split), "concat");
  if (joined == kNone) return kNone;
  const Shape &y = r.meta().shape, &parts = r.g.meta(input(turned)).shape;
  const ir::Node& c = r.g.node(joined);
  constexpr int64_t groups = 2;  // which there are kernels for
  const int rank = y.rank;
  if (c.inputs.size() != groups || dtype_size(r.meta().dtype) != 4 || rank < 2 || rank + 1 > kMaxRank ||
      parts.rank != rank + 1 || !(r.g.meta(input(split)).shape == y))
    return kNone;
  const int64_t channels = y[1] / groups;
  if (normalize_axis("concat", attrs_as<AxisAttrs>(c.attrs.get()).axis, rank) != 1 || channels * groups != y[1] ||
      parts[1] != groups || parts[2] != channels)
    return kNone;
  for (ValueId x : c.inputs)
    if (r.g.meta(x).shape[1] != channels) return kNone;
  const Ints& perm = attrs_as<PermAttrs>(r.g.node(turned).attrs.get()).perm;
  for (int i = 0; i <= rank; ++i) {
    const int from = i == 1 ? 2 : i == 2 ? 1 : i;
    if (perm[static_cast<size_t>(i)] != from || (i > 2 && parts[i] != y[i - 1])) return kNone;
  }
  Shape one = parts;
  one[1] = channels, one[2] = 1;
  const auto single = [&](size_t i) {
    return r.emit("reshape", make_attrs(ShapeAttrs{to_ints(one)}), {r.g.node(joined).inputs[i]});
  };
  const ValueId first = single(0), second = single(1);
  const ValueId pairs = r.emit("concat", make_attrs(AxisAttrs{2}), {first, second});
  return r.emit("reshape", make_attrs(ShapeAttrs{to_ints(y)}), {pairs});
}

// Axes of size 1 have nothing to combine.
ValueId reduce_nothing(Rewriter& r) {
  const Meta& x = r.g.meta(r.in(0));
  if (!r.bound || x.dtype != r.meta().dtype || is_quant(x.dtype)) return kNone;
  if (x.shape.numel() != r.meta().shape.numel() || x.shape.numel() == 0) return kNone;
  if (r.same_as(r.in(0))) return r.in(0);
  return r.emit("reshape", make_attrs(ShapeAttrs{to_ints(r.meta().shape)}), {r.in(0)});
}

// ---- casts

ValueId merge_casts(Rewriter& r) {
  const ValueId x = r.in(0);
  if (r.g.meta(x).same_type(r.meta())) return x;
  const ValueId root = r.of(x, "typecvt");
  if (root == kNone || !holds_exactly(r.g.meta(x).dtype, r.g.meta(root).dtype)) return kNone;
  if (is_quant(r.meta().dtype) || r.meta().dtype == DType::C64) return kNone;
  if (r.g.meta(root).dtype == r.meta().dtype) return root;
  return r.emit("typecvt", r.node().attrs, {root});
}

// ---- negations and their like: each is exact for every value, NaN and -0.0 included

template <class... Names>
ValueId any_of(Rewriter& r, Names... names) {
  ValueId x = kNone;
  ((x = x == kNone ? r.of(r.in(0), names) : x), ...);
  return x;
}
ValueId double_negation(Rewriter& r) { return r.of(r.in(0), "neg"); }
ValueId double_not(Rewriter& r) { return r.of(r.in(0), "logical_not"); }
ValueId even(Rewriter& r) {  // abs and square do not see a sign; unsigned numbers have none, their negation wraps
  const ValueId x = any_of(r, "neg", "abs");
  return x == kNone || is_unsigned(r.meta().dtype) ? kNone : r.emit(r.node().op->name, nullptr, {x});
}
ValueId abs_of_abs(Rewriter& r) { return r.of(r.in(0), "abs") == kNone ? kNone : r.in(0); }
ValueId relu_again(Rewriter& r) { return any_of(r, "relu", "relu6", "sigmoid", "exp") == kNone ? kNone : r.in(0); }
ValueId relu6_again(Rewriter& r) {
  if (r.of(r.in(0), "relu6") != kNone) return r.in(0);
  const ValueId x = r.of(r.in(0), "relu");
  return x == kNone ? kNone : r.emit("relu6", nullptr, {x});
}
ValueId whole_number(Rewriter& r) { return is_int(r.meta().dtype) ? r.in(0) : kNone; }
ValueId with_itself(Rewriter& r) { return r.in(0) == r.in(1) ? r.in(0) : kNone; }

// Sizes that are known are numbers; whoever only asked for them does not need the tensor.
ValueId known_sizes(Rewriter& r) {
  if (!r.bound) return kNone;
  SmallVec<int32_t, 8> sizes;
  for (int64_t d : r.g.meta(r.in(0)).shape) sizes.push_back(static_cast<int32_t>(d));
  return r.g.add_constant_copy(r.meta(), sizes.data());
}

ValueId equal_branches(Rewriter& r) {
  if (auto c = r.number(r.in(0))) {
    const ValueId taken = r.in(*c != 0 ? 1 : 2);
    if (r.bound && r.same_as(taken)) return taken;
  }
  if (r.in(1) == r.in(2) && r.bound && r.same_as(r.in(1))) return r.in(1);
  const ValueId c = r.of(r.in(0), "logical_not");
  return c == kNone ? kNone : r.emit("where", nullptr, {c, r.in(2), r.in(1)});
}

constexpr Rule kRules[] = {
    {"reshape", shuffled_concat},
    {"reshape", merge_reshapes},
    {"flatten", merge_reshapes},
    {"expand_dims", merge_reshapes},
    {"squeeze", merge_reshapes},
    {"transpose", merge_transposes},
    {"broadcast_to", merge_broadcasts},
    {"slice", whole_slice},
    {"sum_to", same_shape},
    {"copy", the_same},
    {"copy_to", same_device},
    {"concat", concat_of_one},
    {"reduce", reduce_nothing},
    {"typecvt", merge_casts},
    {"neg", double_negation},
    {"logical_not", double_not},
    {"abs", abs_of_abs},
    {"abs", even},
    {"square", even},
    {"relu", relu_again},
    {"relu6", relu6_again},
    {"floor", whole_number},
    {"ceil", whole_number},
    {"round", whole_number},
    {"maximum", with_itself},
    {"minimum", with_itself},
    {"logical_and", with_itself},
    {"logical_or", with_itself},
    {"where", equal_branches},
    {"shape_of", known_sizes},
};

// ---- what holds for many ops

// Constants stand on the right, so that rules look there alone and equal expressions look equal.
bool constants_right(Graph& g) {
  bool changed = false;
  for (NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    if (!x.op->is(kCommutative) || x.inputs.size() != 2) continue;
    const ValueId a = x.inputs[0], b = x.inputs[1];
    if (!g.constant_of(a) || g.constant_of(b)) continue;
    g.replace_input(n, 0, b);
    g.replace_input(n, 1, a);
    changed = true;
  }
  return changed;
}

// f(broadcast(x)) is broadcast(f(x)): computed once for each element of x. Only for elementwise readers, which do not
// mind the strides.
bool broadcast_later(Graph& g, NodeId n) {
  const ir::Node& x = g.node(n);
  const NodeId b = g.value(x.inputs[0]).producer;
  const ValueId y = x.outputs[0];
  if (b == kNone || g.node(b).op->name != "broadcast_to" || g.escapes(y)) return false;
  const ValueId root = g.node(b).inputs[0];
  if (g.meta(root).shape.numel() >= g.meta(y).shape.numel()) return false;
  for (NodeId u : g.value(y).users)
    if (!g.node(u).op->is(kElementwise) && g.node(u).op->name != "broadcast_to") return false;
  const NodeId f = g.add_node(*x.op, x.attrs, {&root, 1}, x.loc, n);
  const ValueId small = g.node(f).outputs[0];
  const Attrs shape = make_attrs(ShapeAttrs{to_ints(g.meta(y).shape)});
  const NodeId large = g.add_node(*g.node(b).op, shape, {&small, 1}, g.node(b).loc, n);
  g.stand_for(f, n);
  g.stand_for(large, b);
  replace_value(g, y, g.node(large).outputs[0]);
  erase_unread(g, n);
  return true;
}

// An elementwise op broadcasts for itself.
bool drop_broadcasts(Graph& g) {
  bool changed = false;
  for (NodeId n : g.order()) {
    const ir::Node& x = g.node(n);
    if (x.erased || !x.op->is(kElementwise)) continue;
    if (x.inputs.size() == 1) {
      changed |= broadcast_later(g, n);
      continue;
    }
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      const NodeId b = g.value(x.inputs[i]).producer;
      if (b == kNone || g.node(b).op->name != "broadcast_to") continue;
      const ValueId root = g.node(b).inputs[0];
      const Shape& out = g.meta(x.outputs[0]).shape;
      // Some other operand must still have each size.
      Shape have = g.meta(root).shape;
      bool fits = true;
      for (size_t k = 0; k < x.inputs.size() && fits; ++k) {
        if (k == i) continue;
        const Shape& s = g.meta(x.inputs[k]).shape;
        while (have.rank < s.rank) have.insert(0, 1);
        for (int d = 0; d < s.rank; ++d) {
          int64_t& h = have[have.rank - 1 - d];
          if (h == 1) h = s[s.rank - 1 - d];
        }
      }
      if (!(have == out)) continue;
      g.replace_input(n, i, root);
      erase_unread(g, b);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool canonicalise(Graph& g, bool bound) {
  bool changed = constants_right(g);
  if (bound) changed |= drop_broadcasts(g);
  return apply_rules({.g = g, .bound = bound}, kRules) || changed;
}

}  // namespace mge::pass
