// The geometry of a product on the GPU: one product of matrices for each place of the batch, which is merged to few
// axes.
#pragma once
#include "kernel/cuda/region.h"
#include "op/matmul/matmul.h"

namespace mge::cuda {

struct Product {
  int64_t m, n, k;
  bool ta, tb;
  Nest batch;  // strides of y, a and b, in elements
  const TensorArg* bias;
  explicit Product(const KernelArgs& a);
};

}  // namespace mge::cuda
