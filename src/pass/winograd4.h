// Asks for F(4x4, 3x3) in the convolutions that can be computed so: fewer multiplications, more rounding
// (docs/numerics.md). Which of them are is the kernels' choice. After fuse_conv_epilogue.
//   %1 = conv2d %x, %w {pad=[1,1]}     |  %1 = conv2d_fused %x, %w {pad=[1,1], tile=4}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool winograd4(Graph& g);

}  // namespace mge::pass
