// Convolutions without a library; what cuDNN has no engine for goes there, too.
#pragma once
#include "kernel/kernel.h"

namespace mge::cuda {

/// A = attributes of conv2d, conv2d_dx or conv2d_dw. All operands are row-major.
template <class A>
void run_plain_conv(const KernelArgs& a);
const char* refuse_plain_conv(const KernelArgs& a);

}  // namespace mge::cuda
