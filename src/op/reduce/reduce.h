// reduce, argmax and argmin: their attributes.
#pragma once
#include "op/attrs.h"

namespace mge {

struct ReduceAttrs {
  std::string mode = "sum";  // sum, mean, max, min, prod
  Ints axes;                 // empty = all axes; negative counts from the end
  bool keepdims = false;
  static constexpr auto fields() {
    return field_list("mode", &ReduceAttrs::mode, "axes", &ReduceAttrs::axes, "keepdims", &ReduceAttrs::keepdims);
  }
};

struct ArgReduceAttrs {
  int64_t axis = 0;
  bool keepdims = false;
  static constexpr auto fields() {
    return field_list("axis", &ArgReduceAttrs::axis, "keepdims", &ArgReduceAttrs::keepdims);
  }
};

enum class ReduceMode : uint8_t { Sum, Mean, Max, Min, Prod };
/// Value error that lists the modes when unknown.
ReduceMode parse_reduce_mode(const std::string& mode);
/// Whether sums are kept in double, since float32 does not hold the elements: the mean of 32 and 64 bit integers.
inline bool reduces_in_double(ReduceMode mode, DType t) {
  return mode == ReduceMode::Mean && (t == DType::I32 || t == DType::I64);
}
/// Bit i set = axis i of a rank-`rank` input is reduced. Out of range is a Value error, twice the same an Assertion
/// error.
uint32_t reduced_axes(const Ints& axes, int rank);

}  // namespace mge
