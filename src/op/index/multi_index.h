// Indexing by several int32 tensors at once, as NumPy does for x[i, j]: the indices broadcast against each other, and
// their shape takes the place of the indexed axes.
#pragma once
#include <span>

#include "op/attrs.h"

namespace mge {

struct MultiIndexAttrs {
  Ints axes{};     // the axis that each index names, all different
  int64_t at = 0;  // where the index dimensions go among the axes that are not indexed
  static constexpr auto fields() { return field_list("axes", &MultiIndexAttrs::axes, "at", &MultiIndexAttrs::at); }
};

/// The result of x[indices] is [outer.., index.., inner..].
struct MultiIndexGeom {
  Shape index;                  // the indices broadcast against each other
  Ints outer_axes, inner_axes;  // axes of x that are not indexed
  Shape result;
};
/// Checks attributes and shapes; a Value error naming `who` otherwise.
MultiIndexGeom multi_index_geom(const char* who, const MultiIndexAttrs& at, const Shape& x,
                                std::span<const Shape> indices);

}  // namespace mge
