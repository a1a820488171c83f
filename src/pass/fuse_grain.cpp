#include "pass/fuse_grain.h"

#include <algorithm>

#include "op/elementwise/typecvt.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"
#include "pass/options.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// The count of a sum's elements as a value: a number of the call, or count_of the sizes for any.
bool is_count(const Rewriter& r, ValueId v, ValueId x, const ReduceAttrs& a) {
  const Shape& s = r.g.meta(x).shape;
  const uint32_t mask = reduced_axes(a.axes, s.rank);
  if (r.g.meta(v).shape.rank != 0) return false;
  if (const NodeId count = r.made_by(v, "count_of"); count != kNone) {
    uint32_t counted = 0;
    for (int64_t axis : attrs_as<CountAttrs>(r.g.node(count).attrs.get()).axes) counted |= 1u << axis;
    return counted == mask && r.of(r.g.node(count).inputs[0], "shape_of") == x && r.g.node(count).sizes.empty();
  }
  if (!r.bound) return false;
  double n = 1;
  for (int i = 0; i < s.rank; ++i)
    if (mask >> i & 1) n *= static_cast<double>(s[i]);
  return n > 0 && n <= 16777216 && r.number(v) == n;
}

ValueId sum_by_count(Rewriter& r) {
  const NodeId sum = r.made_by(r.in(0), "reduce");
  if (sum == kNone || !r.g.node(sum).sizes.empty()) return kNone;
  ReduceAttrs a = attrs_as<ReduceAttrs>(r.g.node(sum).attrs.get());
  const ValueId x = r.g.node(sum).inputs[0];
  const DType t = r.g.meta(x).dtype;
  const bool narrow = t == DType::F16 || t == DType::BF16;
  if (a.mode != "sum" || !is_float(t) || (narrow && !r.asked(kSumToMean)) || !is_count(r, r.in(1), x, a)) return kNone;
  a.mode = "mean";
  const ValueId mean = r.emit("reduce", make_attrs(a), {x});
  return narrow ? r.emit("typecvt", make_attrs(TypeCvtAttrs{t}), {mean}) : mean;
}

// reduce(reshape(x)) where one reduced axis is a run of axes of x, and all others are as they were.
ValueId reduce_joined(Rewriter& r) {
  const NodeId view = r.made_by(r.in(0), "reshape");
  const NodeId flat = r.made_by(r.in(0), "flatten");
  if (!r.bound || (view == kNone && flat == kNone) || !r.node().sizes.empty()) return kNone;
  const ValueId x = r.g.node(view == kNone ? flat : view).inputs[0];
  const Shape &from = r.g.meta(x).shape, &to = r.g.meta(r.in(0)).shape;
  ReduceAttrs a = attrs_as<ReduceAttrs>(r.node().attrs.get());
  const uint32_t mask = reduced_axes(a.axes, to.rank);
  if (from.rank <= to.rank || from.numel() == 0) return kNone;
  Ints axes;
  int i = 0;
  for (int k = 0; k < to.rank; ++k) {
    const int first = i;
    int64_t n = from[i++];
    while (i < from.rank && n < to[k]) n *= from[i++];
    if (k == to.rank - 1)
      while (i < from.rank) n *= from[i++];
    const bool reduced = mask >> k & 1;
    if (n != to[k] || (!reduced && i - first != 1) || (k < to.rank - 1 && i >= from.rank)) return kNone;
    for (int j = first; reduced && j < i; ++j) axes.push_back(j);
  }
  a.axes = axes;
  const ValueId y = r.emit("reduce", make_attrs(a), {x});
  if (r.g.meta(y).shape == r.meta().shape) return y;
  return r.emit("reshape", make_attrs(ShapeAttrs{to_ints(r.meta().shape)}), {y});
}

// Axes put back after a reduction that had dropped them.
ValueId keep_dims(Rewriter& r) {
  const NodeId n = r.made_by(r.in(0), "reduce");
  if (!r.bound || n == kNone || r.g.use_count(r.in(0)) != 1) return kNone;
  ReduceAttrs a = attrs_as<ReduceAttrs>(r.g.node(n).attrs.get());
  if (a.keepdims) return kNone;
  const ValueId x = r.g.node(n).inputs[0];
  Shape kept = r.g.meta(x).shape;
  const uint32_t mask = reduced_axes(a.axes, kept.rank);
  for (int i = 0; i < kept.rank; ++i)
    if (mask >> i & 1) kept[i] = 1;
  if (!(kept == r.meta().shape)) return kNone;
  a.keepdims = true;
  const ir::LocId loc = r.g.node(n).loc;
  const ValueId y = r.emit("reduce", make_attrs(a), {x});
  r.g.set_loc(r.g.value(y).producer, loc);
  return y;
}

constexpr Rule kRules[] = {
    {"div", sum_by_count},
    {"reduce", reduce_joined},
    {"reshape", keep_dims},
    {"expand_dims", keep_dims},
};

}  // namespace

bool fuse_grain(Graph& g, bool bound, uint32_t rewrites) {
  return apply_rules({.g = g, .bound = bound, .rewrites = rewrites}, kRules);
}

}  // namespace mge::pass
