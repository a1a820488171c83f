// Training-mode batch norm and what stands around it in a network, with the bits of the single ops: the addition and
// the activation after it are done while it writes its result, and the activation's gradient while batch_norm_bwd reads
// its operands, which then needs no result of the activation but x, read anyway. Saves the passes over memory of those
// ops, and results that only their gradients read.
//   %y, %m, %v, %r = batch_norm_train %x, %w, %b  |  %a, %m, %v, %r = batch_norm_fused %x, %w, %b {act="relu"}
//   %a = relu %y                                  |
//   %g = relu_grad %a, %ga                        |
//   %gx, %gw, %gb = batch_norm_bwd %x, %g, %w,    |  %gx, %gw, %gb = batch_norm_fused_bwd %x, %ga, %w, %m, %r, %b
//                                  %m, %r         |                                          {act="relu"}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool fuse_batch_norm(Graph& g);

}  // namespace mge::pass
