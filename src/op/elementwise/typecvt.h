// typecvt: change of element type. float -> integer truncates, then wraps for 8 and 16 bits and saturates for 32 and 64
// (NaN gives 0); anything -> bool is x != 0.
#pragma once
#include "op/attrs.h"

namespace mge {

struct TypeCvtAttrs {
  DType dtype = DType::F32;
  static constexpr auto fields() { return field_list("dtype", &TypeCvtAttrs::dtype); }
};

}  // namespace mge
