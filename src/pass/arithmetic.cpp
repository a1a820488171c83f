#include "pass/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "op/conv/conv2d.h"
#include "op/elementwise/typecvt.h"
#include "op/shape/shape_ops.h"
#include "pass/options.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

bool real(DType t) { return is_float(t) || is_int(t); }

/// The constant on the right of a binary node.
std::optional<double> right(const Rewriter& r) { return real(r.meta().dtype) ? r.number(r.in(1)) : std::nullopt; }
bool right_is(const Rewriter& r, double v) {
  auto c = right(r);
  return c && *c == v && !std::signbit(*c) == !std::signbit(v);
}

// ---- same bits

// Values that cannot be -0.0, for which x + 0.0 is x.
bool never_minus_zero(const Rewriter& r, ValueId v) {
  const OpDef* op = r.g.producer_op(v);
  if (!op) return false;
  for (const char* name : {"relu", "relu6", "abs", "square", "exp", "sigmoid"})
    if (op->name == name) return true;
  return false;
}

ValueId times_one(Rewriter& r) { return right_is(r, 1) && r.same_as(r.in(0)) ? r.in(0) : kNone; }

ValueId times_minus_one(Rewriter& r) {
  return right_is(r, -1) && r.same_as(r.in(0)) ? r.emit("neg", nullptr, {r.in(0)}) : kNone;
}

ValueId plus_nothing(Rewriter& r) {
  auto c = right(r);
  if (!c || *c != 0 || !r.same_as(r.in(0))) return kNone;
  const bool exact = is_int(r.meta().dtype) || std::signbit(*c) || never_minus_zero(r, r.in(0));
  return exact || r.asked(kAddZero) ? r.in(0) : kNone;
}

ValueId minus_nothing(Rewriter& r) {
  auto c = right(r);
  if (!c || *c != 0 || !r.same_as(r.in(0))) return kNone;
  return is_int(r.meta().dtype) || !std::signbit(*c) || r.asked(kAddZero) ? r.in(0) : kNone;
}

// x / 2^k is x * 2^-k: the same real number, rounded once either way, as long as both are normal numbers.
ValueId by_power_of_two(Rewriter& r) {
  auto c = right(r);
  const DType t = r.meta().dtype;
  if (!c || !is_float(t) || *c == 0 || !std::isfinite(*c) || !r.same_as(r.in(0))) return kNone;
  int exponent = 0;
  const bool exact = std::abs(std::frexp(*c, &exponent)) == 0.5;
  const int limit = t == DType::F64 ? 1000 : t == DType::F16 ? 13 : 120;
  if (!exact || std::abs(exponent) > limit) return kNone;
  return r.emit("mul", nullptr, {r.in(0), r.scalar_like(1 / *c, r.in(1))});
}

// a + (-b) is a - b by definition; so is a - (-b) = a + b.
ValueId plus_negative(Rewriter& r) {
  if (!real(r.meta().dtype)) return kNone;
  if (ValueId b = r.of(r.in(1), "neg"); b != kNone) return r.emit("sub", nullptr, {r.in(0), b});
  if (ValueId a = r.of(r.in(0), "neg"); a != kNone) return r.emit("sub", nullptr, {r.in(1), a});
  return kNone;
}
ValueId minus_negative(Rewriter& r) {
  const ValueId b = real(r.meta().dtype) ? r.of(r.in(1), "neg") : kNone;
  return b == kNone ? kNone : r.emit("add", nullptr, {r.in(0), b});
}
ValueId both_negative(Rewriter& r) {
  const ValueId a = r.of(r.in(0), "neg"), b = r.of(r.in(1), "neg");
  if (a == kNone || b == kNone || !real(r.meta().dtype)) return kNone;
  return r.emit(r.node().op->name, nullptr, {a, b});
}

ValueId power(Rewriter& r) {
  auto c = right(r);
  if (!c || !r.same_as(r.in(0))) return kNone;
  if (*c == 1) return r.in(0);
  if (*c == 2) return r.emit("square", nullptr, {r.in(0)});
  if (*c == 0) return r.emit("fill_like", make_attrs(ValueAttrs{1}), {r.in(0)});
  return kNone;
}

ValueId floor_by_one(Rewriter& r) {
  if (!right_is(r, 1) || !r.same_as(r.in(0))) return kNone;
  return is_int(r.meta().dtype) ? r.in(0) : r.emit("floor", nullptr, {r.in(0)});
}

// (x + c1) + c2 is x + (c1 + c2) for integers, which wrap. Floats round in between.
ValueId merge_constants(Rewriter& r) {
  const NodeId inner = r.made_by(r.in(0), r.node().op->name);
  if (inner == kNone || !r.is_const(r.in(1)) || !real(r.meta().dtype)) return kNone;
  if (!is_int(r.meta().dtype) && !r.asked(kMergeConstants)) return kNone;
  const ValueId x = r.g.node(inner).inputs[0], c = r.g.node(inner).inputs[1];
  if (!r.is_const(c) || r.is_const(x)) return kNone;
  const Shape &s1 = r.g.meta(c).shape, &s2 = r.g.meta(r.in(1)).shape;
  if (!(s1 == s2) && s1.rank > 0 && s2.rank > 0) return kNone;  // their sum could be larger than both
  const ValueId both = r.emit(r.node().op->name, nullptr, {c, r.in(1)});
  return r.emit(r.node().op->name, nullptr, {x, both});
}

// ---- other bits, each by its name

ValueId divided_by_itself(Rewriter& r) {
  return r.in(0) == r.in(1) && is_float(r.meta().dtype) ? r.emit("fill_like", make_attrs(ValueAttrs{1}), {r.in(0)})
                                                        : kNone;
}
ValueId minus_itself(Rewriter& r) {
  return r.in(0) == r.in(1) && real(r.meta().dtype) ? r.emit("fill_like", nullptr, {r.in(0)}) : kNone;
}
ValueId times_reciprocal(Rewriter& r) {
  if (!r.is_const(r.in(1)) || r.is_const(r.in(0)) || !is_float(r.meta().dtype)) return kNone;
  const ValueId reciprocal = r.emit("div", nullptr, {r.scalar_like(1, r.in(1)), r.in(1)});
  return r.emit("mul", nullptr, {r.in(0), reciprocal});
}
ValueId times_zero(Rewriter& r) {
  auto c = right(r);
  return c && *c == 0 && r.same_as(r.in(0)) ? r.emit("fill_like", nullptr, {r.in(0)}) : kNone;
}

ValueId log_of_exp(Rewriter& r) {
  const ValueId v = r.in(0);
  if (ValueId x = r.of(v, "exp"); x != kNone) return x;
  for (const char* op : {"mul", "div"}) {
    const NodeId p = r.made_by(v, op);
    if (p == kNone) continue;
    ValueId a = r.g.node(p).inputs[0], b = r.g.node(p).inputs[1];
    if (op[0] == 'm' && r.of(a, "exp") == kNone) std::swap(a, b);
    const ValueId x = r.of(a, "exp");
    if (x == kNone) continue;
    return r.emit(op[0] == 'm' ? "add" : "sub", nullptr, {x, r.emit("log", nullptr, {b})});
  }
  return kNone;
}

ValueId log_of_sum(Rewriter& r) {
  const NodeId sum = r.made_by(r.in(0), "add");
  if (sum == kNone) return kNone;
  const ValueId x = r.of(r.g.node(sum).inputs[0], "exp"), y = r.of(r.g.node(sum).inputs[1], "exp");
  return x == kNone || y == kNone ? kNone : r.emit("logaddexp", nullptr, {x, y});
}

ValueId log_of_one_plus(Rewriter& r) {
  const NodeId sum = r.made_by(r.in(0), "add");
  if (sum == kNone || !(r.number(r.g.node(sum).inputs[1]) == 1.0)) return kNone;
  const ValueId x = r.g.node(sum).inputs[0];
  if (!r.g.meta(x).same_type(r.meta())) return kNone;
  return r.bound || r.g.meta(r.g.node(sum).inputs[1]).shape.rank == 0 ? r.emit("log1p", nullptr, {x}) : kNone;
}
ValueId exp_minus_one(Rewriter& r) {
  const ValueId x = r.of(r.in(0), "exp");
  return x != kNone && right_is(r, 1) && r.same_as(r.in(0)) ? r.emit("expm1", nullptr, {x}) : kNone;
}

// The operands of a chain of + or *, smallest first: what is small is combined before it is repeated.
ValueId reassociate(Rewriter& r) {
  if (!r.bound || !is_float(r.meta().dtype)) return kNone;
  const std::string_view op = r.node().op->name;
  for (NodeId u : r.g.value(r.node().outputs[0]).users)
    if (r.g.node(u).op == r.node().op) return kNone;  // not the end of the chain
  std::vector<ValueId> terms, look{r.in(1), r.in(0)};
  while (!look.empty()) {
    const ValueId v = look.back();
    look.pop_back();
    const NodeId p = r.made_by(v, op);
    if (p == kNone || r.g.use_count(v) != 1) {
      terms.push_back(v);
      continue;
    }
    look.push_back(r.g.node(p).inputs[1]);
    look.push_back(r.g.node(p).inputs[0]);
  }
  if (terms.size() < 3) return kNone;
  auto rank = [&](ValueId v) { return std::pair(r.g.meta(v).shape.numel(), !r.is_const(v)); };
  if (std::is_sorted(terms.begin(), terms.end(), [&](ValueId a, ValueId b) { return rank(a) < rank(b); })) return kNone;
  std::stable_sort(terms.begin(), terms.end(), [&](ValueId a, ValueId b) { return rank(a) < rank(b); });
  ValueId sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = r.emit(op, nullptr, {sum, terms[i]});
  return r.g.meta(sum).same_type(r.meta()) ? sum : kNone;
}

ValueId cast_and_back(Rewriter& r) {
  const ValueId x = r.of(r.in(0), "typecvt");
  return x != kNone && is_float(r.meta().dtype) && is_float(r.g.meta(r.in(0)).dtype) && r.g.meta(x).same_type(r.meta())
             ? x
             : kNone;
}

// conv(x, w) * s is conv(x, w * s) for constants: no scaling at run time, other roundings.
ValueId scale_weights(Rewriter& r) {
  const NodeId conv = r.made_by(r.in(0), Conv2dAttrs::kOp);
  if (conv == kNone || !r.is_const(r.in(1)) || r.g.use_count(r.in(0)) != 1) return kNone;
  const ir::Node& c = r.g.node(conv);
  const Shape& s = r.g.meta(r.in(1)).shape;
  const int64_t channels = r.meta().shape[1];
  if (!r.is_const(c.inputs[1]) || !(s == Shape{1, channels, 1, 1}) || !is_float(r.meta().dtype)) return kNone;
  if (c.inputs.size() > 2 && !r.is_const(c.inputs[2])) return kNone;
  const Shape& w = r.g.meta(c.inputs[1]).shape;  // [O,C,kh,kw], or [g,O/g,C/g,kh,kw]
  Ints column_shape{w[0]};
  if (w.rank == 5) column_shape.push_back(w[1]);
  while (static_cast<int>(column_shape.size()) < w.rank) column_shape.push_back(1);
  const ValueId column = r.emit("reshape", make_attrs(ShapeAttrs{column_shape}), {r.in(1)});
  const ValueId weight = r.emit("mul", nullptr, {c.inputs[1], column});
  SmallVec<ValueId, 3> in{c.inputs[0], weight};
  if (c.inputs.size() > 2) in.push_back(r.emit("mul", nullptr, {c.inputs[2], r.in(1)}));
  return r.g.node(r.g.add_node(*c.op, c.attrs, {in.data(), in.size()}, c.loc, r.n)).outputs[0];
}

constexpr Rule kRules[] = {
    {"mul", times_one},
    {"div", times_one},
    {"mul", times_minus_one},
    {"div", times_minus_one},
    {"add", plus_nothing},
    {"sub", minus_nothing},
    {"div", by_power_of_two},
    {"add", plus_negative},
    {"sub", minus_negative},
    {"mul", both_negative},
    {"div", both_negative},
    {"pow", power},
    {"floor_div", floor_by_one},
    {"add", merge_constants},
    {"mul", merge_constants},
    {"div", divided_by_itself, kDivSelf},
    {"sub", minus_itself, kSubSelf},
    {"div", times_reciprocal, kDivToMul},
    {"mul", times_zero, kMulZero},
    {"log", log_of_exp, kLogExp},
    {"log", log_of_sum, kLogSumExp},
    {"log", log_of_one_plus, kLog1p},
    {"sub", exp_minus_one, kLog1p},
    {"typecvt", cast_and_back, kDoubleCast},
    {"mul", scale_weights, kFoldBatchNorm},
    {"add", reassociate, kReassociate},
    {"mul", reassociate, kReassociate},
};

}  // namespace

bool arithmetic(Graph& g, bool bound, uint32_t rewrites) {
  return apply_rules({.g = g, .bound = bound, .rewrites = rewrites}, kRules);
}

}  // namespace mge::pass
