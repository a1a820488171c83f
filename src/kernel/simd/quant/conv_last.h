// qconv2d along channels by dot products of bytes.
#pragma once
#include "kernel/kernel.h"

namespace mge::simd_nn {

Kernel qconv2d_last();
bool takes_dots(const KernelArgs& a);

}  // namespace mge::simd_nn
