// Pulls what follows a convolution into it: + bias, * scale + shift (per channel), + another tensor, an activation (any
// elementwise op of one operand, and prelu by a constant), in this order, each optional (operator fusion). The fused
// kernel rounds after each step, so no bit changes; what is saved is passes over memory. Intermediates must have no
// other reader.
//   %0 = conv2d %x, %w                |
//   %1 = mul %0, %scale               |
//   %2 = add %1, %shift               |
//   %3 = relu %2                      |  %3 = conv2d_fused %x, %w, %scale, %shift {has_scale=true, act="relu"}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool fuse_conv_epilogue(Graph& g);

}  // namespace mge::pass
