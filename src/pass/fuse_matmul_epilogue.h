// Pulls the elementwise ops that follow a matrix product into it (operator fusion): scale and shift, activations,
// masks, residual sums, and in backward passes the slope of an activation. The kernel applies each step to blocks of
// the result that are still in the cache, rounding after each, so no bit changes; what is saved is passes over memory.
// A step reads the result so far and at most one other operand: like the result, one of its matrices, a row, or one
// value, and there before the product. Intermediates must have no other reader.
//   %0 = matmul %q, %k {tb=true}      |
//   %1 = mul %0, %scale               |
//   %2 = add %1, %mask                |  %2 = matmul_fused %q, %k, %scale, %mask {tb=true, steps="mul(y,0) add(y,1)"}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool fuse_matmul_epilogue(Graph& g);

}  // namespace mge::pass
