#include "op/reduce/reduce.h"

#include <algorithm>

#include "op/compose.h"
#include "op/in_build.h"

namespace mge {

ReduceMode parse_reduce_mode(const std::string& mode) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min", "prod"};
  for (int i = 0; i < 5; ++i)
    if (mode == kNames[i]) return static_cast<ReduceMode>(i);
  fail(ErrorKind::Value, "reduce: unknown mode '{}'; known: sum, mean, max, min, prod.", mode);
}

uint32_t reduced_axes(const Ints& axes, int rank) {
  if (axes.empty()) return (1u << rank) - 1;
  uint32_t mask = 0;
  for (int64_t a : axes) {
    uint32_t bit = 1u << normalize_axis("reduce", a, rank);
    MGE_CHECK(!(mask & bit), Assertion, "reduce: axis {} is given twice.", a);
    mask |= bit;
  }
  return mask;
}

namespace {

Shape without_axes(const Shape& s, uint32_t mask, bool keepdims) {
  Shape out;
  for (int i = 0; i < s.rank; ++i) {
    if (!(mask >> i & 1))
      out.push_back(s[i]);
    else if (keepdims)
      out.push_back(1);
  }
  return out;
}

DType result_dtype(ReduceMode mode, DType t) {
  if (mode == ReduceMode::Mean) return t == DType::F64 ? t : DType::F32;
  bool accumulates = mode == ReduceMode::Sum || mode == ReduceMode::Prod;
  return t == DType::Bool && accumulates ? DType::I32 : t;
}

void infer_reduce(InferCtx& c) {
  auto& a = attrs_as<ReduceAttrs>(c.attrs);
  ReduceMode mode = parse_reduce_mode(a.mode);
  const Shape& x = c.shape(0);
  DType t = c.dtype(0);
  MGE_CHECK(is_float(t) || is_int(t) || t == DType::Bool, Type,
            "reduce: takes integer, floating-point or bool tensors; got {}. Cast with astype.", dtype_name(t));
  uint32_t mask = reduced_axes(a.axes, x.rank);
  if ((mode == ReduceMode::Max || mode == ReduceMode::Min) && !is_float(t)) {  // of no floats: -inf, inf
    Shape kept = without_axes(x, mask, false);
    MGE_CHECK(x.numel() > 0 || kept.numel() == 0, Value,
              "reduce: {} over no elements has no value in {}; input shape {}, axes {}. In floating point it is {}inf: "
              "cast with astype(\"float32\").",
              a.mode, dtype_name(t), x.str(), print_attr(a.axes), mode == ReduceMode::Max ? "-" : "");
  }
  c.out[0].dtype = result_dtype(mode, t);
  c.out[0].shape = without_axes(x, mask, a.keepdims);
}

void infer_arg_reduce(InferCtx& c) {
  auto& a = attrs_as<ArgReduceAttrs>(c.attrs);
  const Shape& x = c.shape(0);
  const char* who = c.op->name.c_str();
  MGE_CHECK(is_float(c.dtype(0)) || is_int(c.dtype(0)) || c.dtype(0) == DType::Bool, Type,
            "{}: takes integer, floating-point or bool tensors; got {}. Cast with astype.", who,
            dtype_name(c.dtype(0)));
  MGE_CHECK(x.rank > 0, Value, "{}: a 0-d tensor has no axis to search. Reshape it to [1] first.", who);
  int axis = normalize_axis(who, a.axis, x.rank);
  Shape y = without_axes(x, 1u << axis, a.keepdims);
  MGE_CHECK(x[axis] > 0 || y.numel() == 0, Value, "{}: axis {} has no elements; input shape {}.", who, axis, x.str());
  MGE_CHECK(x[axis] <= INT32_MAX, Value, "{}: axis {} has {} elements; int32 indices reach 2147483647.", who, axis,
            x[axis]);
  c.out[0].dtype = DType::I32;
  c.out[0].shape = y;
}

// The least position whose element equals the extreme; NaN is the extreme wherever there is one.
template <bool kMax>
void decompose_arg_reduce(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<ArgReduceAttrs>(attrs);
  const Val& x = in[0];
  int axis = normalize_axis("argmax", a.axis, x.shape().rank);
  Val hit = binary("eq", x, reduce(x, kMax ? "max" : "min", {axis}, true));
  if (is_float(x.dtype())) hit = binary("logical_or", hit, unary("isnan", x));
  Val position = iota_along(x, x.shape(), axis);
  Val none = scalar_like(position, static_cast<double>(std::max<int64_t>(x.shape()[axis] - 1, 0)));
  out[0] = reduce(select(hit, position, none), "min", {axis}, a.keepdims);
}

double cost_of_input(const InferCtx& c) { return static_cast<double>(c.shape(0).numel()); }

}  // namespace

void register_reduce(OpRegistry& r) {
  r.op("reduce")
      .attrs<ReduceAttrs>()
      .in("x")
      .out("y")
      .infer(infer_reduce)
      .traits(kReduction)
      .cost(cost_of_input)
      .doc(
          "Sum, mean, max, min or product over axes; empty axes means all. mean is floating point, sum and prod of "
          "bool are int32. Of nothing: 0, NaN, -inf, inf and 1.");
  r.op("argmax")
      .attrs<ArgReduceAttrs>()
      .in("x")
      .out("index")
      .infer(infer_arg_reduce)
      .decompose(decompose_arg_reduce<true>)
      .traits(kReduction | kNoGrad)
      .cost(cost_of_input)
      .doc("int32 position of the largest element along an axis, the first one of equals; NaN counts as largest.");
  r.op("argmin")
      .attrs<ArgReduceAttrs>()
      .in("x")
      .out("index")
      .infer(infer_arg_reduce)
      .decompose(decompose_arg_reduce<false>)
      .traits(kReduction | kNoGrad)
      .cost(cost_of_input)
      .doc("int32 position of the smallest element along an axis, the first one of equals; NaN counts as smallest.");
}

}  // namespace mge
