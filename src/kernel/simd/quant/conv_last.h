// qconv2d along channels, and qmatmul, by dot products of bytes.
#pragma once
#include "kernel/kernel.h"

namespace mge::simd_nn {

Kernel qconv2d_last();
Kernel qmatmul_dots();
/// Whether they do.
bool conv_takes_dots(const KernelArgs& a);
bool matmul_takes_dots(const KernelArgs& a);

}  // namespace mge::simd_nn
