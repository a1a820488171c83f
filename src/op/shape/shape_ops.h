// Attributes of the ops that move or name elements without computing on them.
#pragma once
#include "op/attrs.h"

namespace mge {

struct ShapeAttrs {  // reshape (one -1 allowed), broadcast_to
  Ints shape;
  static constexpr auto fields() { return field_list("shape", &ShapeAttrs::shape); }
};
struct PermAttrs {
  Ints perm;
  static constexpr auto fields() { return field_list("perm", &PermAttrs::perm); }
};
struct AxesAttrs {  // expand_dims (axes of the result), squeeze (empty = every axis of size 1)
  Ints axes;
  static constexpr auto fields() { return field_list("axes", &AxesAttrs::axes); }
};
/// Per listed axis [start, stop) by step. As numbers of one size, 0 <= start <= size; negative steps run downwards from
/// start to stop exclusive, stop = -1 meaning "through element 0". As Python writes them (`python`), for any size:
/// negative bounds count from the end, all are clamped, kOpen and -kOpen leave a bound open, and step 0 is the one
/// element at start, which must be there.
struct SliceAttrs {
  Ints axes, starts, stops, steps;
  bool python = false;
  static constexpr int64_t kOpen = INT32_MAX;
  static constexpr auto fields() {
    return field_list("axes", &SliceAttrs::axes, "starts", &SliceAttrs::starts, "stops", &SliceAttrs::stops, "steps",
                      &SliceAttrs::steps, "python", &SliceAttrs::python);
  }
};
struct RangeAttrs {  // flatten: the axes start..end become one
  int64_t start = 0, end = -1;
  static constexpr auto fields() { return field_list("start", &RangeAttrs::start, "end", &RangeAttrs::end); }
};
struct AxisAttrs {
  int64_t axis = 0;
  static constexpr auto fields() { return field_list("axis", &AxisAttrs::axis); }
};
struct FullAttrs {
  Ints shape;
  double value = 0;
  DType dtype = DType::F32;
  static constexpr auto fields() {
    return field_list("shape", &FullAttrs::shape, "value", &FullAttrs::value, "dtype", &FullAttrs::dtype);
  }
};
struct CountAttrs {
  Ints axes;
  DType dtype = DType::F32;
  static constexpr auto fields() { return field_list("axes", &CountAttrs::axes, "dtype", &CountAttrs::dtype); }
};
struct ValueAttrs {
  double value = 0;
  static constexpr auto fields() { return field_list("value", &ValueAttrs::value); }
};

class OpRegistry;
void register_shape_ops(OpRegistry& r);
void register_shape_grads(OpRegistry& r);

/// A slice as numbers of one size.
SliceAttrs resolved_slice(const SliceAttrs& a, const Shape& shape);
/// The layout of the sliced region of a tensor with `shape`/`layout`.
Layout slice_layout(const SliceAttrs& a, const Shape& shape, const Layout& layout);

}  // namespace mge
