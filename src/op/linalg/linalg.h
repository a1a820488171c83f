// Inverse and singular values of the matrices in the last two axes; eye, which their gradients need.
#pragma once
#include "op/attrs.h"

namespace mge {

struct SvdAttrs {
  bool full_matrices = false;  // u [m,m] and vh [n,n] instead of [m,k] and [k,n], k = min(m,n)
  static constexpr auto fields() { return field_list("full_matrices", &SvdAttrs::full_matrices); }
};

struct EyeAttrs {
  int64_t rows = 1, cols = 1, k = 0;  // ones where column - row == k
  DType dtype = DType::F32;
  static constexpr auto fields() {
    using A = EyeAttrs;
    return field_list("rows", &A::rows, "cols", &A::cols, "k", &A::k, "dtype", &A::dtype);
  }
};

}  // namespace mge
