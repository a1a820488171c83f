// softmax_xent: cross entropy of softmax(x) with integer labels; its attrs are XentAttrs.
#pragma once
#include "op/attrs.h"

namespace mge {

struct XentAttrs {
  int64_t axis = 1;
  static constexpr auto fields() { return field_list("axis", &XentAttrs::axis); }
};

}  // namespace mge
