// Evaluation-mode batch norm becomes what it is defined as: x*scale + shift, each step rounded, so no bit changes. With
// constant statistics, constant_fold afterwards leaves two nodes; fuse_conv_epilogue puts those into the convolution
// before them.
//   %1 = batch_norm_infer %0, %w, %b, %m, %v   |  %1 = mul %0, %scale
//                                              |  %2 = add %1, %shift
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool bn_to_scale_shift(Graph& g);

}  // namespace mge::pass
