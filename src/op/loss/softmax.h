// softmax and logsoftmax along one axis.
#pragma once
#include "op/attrs.h"

namespace mge {

struct SoftmaxAttrs {
  int64_t axis = -1;
  static constexpr auto fields() { return field_list("axis", &SoftmaxAttrs::axis); }
};

/// x as [outer, size, inner] around one axis.
struct AxisGeom {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisGeom axis_geom(const Shape& x, int axis);

}  // namespace mge
