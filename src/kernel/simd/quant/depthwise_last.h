// Depthwise qconv2d of bytes in channels-last order.
#pragma once
#include "kernel/kernel.h"

namespace mge::simd_nn {

Kernel qconv2d_depthwise_last();

}  // namespace mge::simd_nn
