// Between real numbers and quantised dtypes: real = scale * (q - zero_point).
#pragma once
#include "op/attrs.h"

namespace mge {

class OpRegistry;

struct QuantizeAttrs {
  DType dtype = DType::QI8;
  double scale = 1;
  int64_t zero_point = 0;
  static constexpr auto fields() {
    return field_list("dtype", &QuantizeAttrs::dtype, "scale", &QuantizeAttrs::scale, "zero_point",
                      &QuantizeAttrs::zero_point);
  }
};

/// Least and largest stored integer of a quantised dtype.
struct QuantRange {
  int64_t lo, hi;
};
QuantRange quant_range(DType t);

void register_quantize(OpRegistry& r);

}  // namespace mge
