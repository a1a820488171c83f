#include "op/nn.h"

namespace mge {

namespace nn {

std::string input_name(const InferCtx& c, size_t i) {
  size_t last = c.op->inputs.size() - 1;
  if (c.op->variadic && i >= last) return format("{}[{}]", c.op->inputs[last], i - last);
  return c.op->inputs[i];
}

void check_float(const InferCtx& c, size_t i) {
  MGE_CHECK(is_float(c.dtype(i)), Type,
            "{}: {} must be a floating-point tensor; got {}. Cast it with astype(\"float32\").", c.op->name,
            input_name(c, i), c.x(i).str());
}

void check_dtype(const InferCtx& c, size_t i, DType want) {
  MGE_CHECK(c.dtype(i) == want, Type, "{}: {} must be {}; got {}. Cast it with astype(\"{}\").", c.op->name,
            input_name(c, i), dtype_name(want), c.x(i).str(), dtype_name(want));
}

void check_rank(const InferCtx& c, size_t i, int lo, int hi) {
  int r = c.shape(i).rank;
  MGE_CHECK(r >= lo && r <= hi, Value, "{}: {} must have {} dimensions; got {}.", c.op->name, input_name(c, i),
            lo == hi         ? std::to_string(lo)
            : hi >= kMaxRank ? format("{} or more", lo)
                             : format("{} to {}", lo, hi),
            c.x(i).str());
}

void check_shape_is(const InferCtx& c, size_t i, const Shape& want, std::string_view why) {
  if (c.shape(i) == want) return;
  check_shape(c.op->name.c_str(), want);  // one made from attributes may be impossible
  fail(ErrorKind::Value, "{}: {} must have shape {} {}; got {}.{}", c.op->name, input_name(c, i), want.str(), why,
       c.shape(i).str(), c.shape(i).numel() == want.numel() ? " Reshape it." : "");
}

void check_axes(const InferCtx& c, const char* attr, const Ints& v, size_t axes, int64_t least) {
  bool count = v.size() == 1 || v.size() == axes;
  MGE_CHECK(count, Value, "{}: {} takes one or {} ints; got {}.", c.op->name, attr, axes == 2 ? "two" : "three",
            print_attr(v));
  constexpr int64_t kMost = int64_t{1} << 31;  // keeps the size arithmetic below far from overflow
  for (int64_t i : v) {
    MGE_CHECK(i >= least, Value, "{}: {} must be at least {}; got {}.", c.op->name, attr, least, print_attr(v));
    MGE_CHECK(i < kMost, Value, "{}: {} is too large; got {}.", c.op->name, attr, print_attr(v));
  }
}

Pair pair_of(const InferCtx& c, const char* attr, const Ints& v, int64_t least) {
  check_axes(c, attr, v, 2, least);
  return pair_of(v);
}

Pair pair_of(const Ints& v) { return {v[0], v.size() == 1 ? v[0] : v[1]}; }

}  // namespace nn
}  // namespace mge
