// Order along one axis: sort, topk, and gather, which picks by position along an axis. NaN counts as larger than every
// number, as in NumPy, and equal elements keep their order in both directions.
#pragma once
#include "op/attrs.h"

namespace mge {

struct SortAttrs {
  int64_t axis = -1;
  bool descending = false;
  static constexpr auto fields() { return field_list("axis", &SortAttrs::axis, "descending", &SortAttrs::descending); }
};

struct TopkAttrs {
  int64_t k = 1, axis = -1;
  bool descending = true;  // the k largest, largest first; otherwise the k smallest, smallest first
  bool sorted = true;      // otherwise in the order they have in x
  static constexpr auto fields() {
    using A = TopkAttrs;
    return field_list("k", &A::k, "axis", &A::axis, "descending", &A::descending, "sorted", &A::sorted);
  }
};

struct GatherAttrs {
  int64_t axis = 0;
  static constexpr auto fields() { return field_list("axis", &GatherAttrs::axis); }
};

struct GatherBwdAttrs {
  int64_t axis = 0;
  Ints x_shape{};
  static constexpr auto fields() {
    return field_list("axis", &GatherBwdAttrs::axis, "x_shape", &GatherBwdAttrs::x_shape);
  }
};

}  // namespace mge
