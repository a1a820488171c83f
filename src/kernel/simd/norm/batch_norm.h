// What the kernels of batch_norm.cpp and batch_norm_fused.cpp are registered with.
#pragma once
#include "kernel/kernel.h"

namespace mge::simd_nn {

/// x decides; per-channel operands are row-major.
void batch_norm_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out);

}  // namespace mge::simd_nn
