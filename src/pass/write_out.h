// Composites whose parts are worth more than the whole become what they are defined as, each step rounded, so no bit
// changes. Evaluation-mode batch norm is x*scale + shift: with constant statistics, constant_fold afterwards leaves two
// nodes, and fuse_conv_epilogue puts those into the convolution before them. Simulated quantisation is a chain of
// elementwise ops, which fuse_elementwise joins with its neighbours.
//   %1 = batch_norm_infer %0, %w, %b, %m, %v   |  %1 = mul %0, %scale
//                                              |  %2 = add %1, %shift
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool write_out(Graph& g);
/// Nothing else: what a file says of quantisation stays.
bool write_out_batch_norms(Graph& g);

}  // namespace mge::pass
