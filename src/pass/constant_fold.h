// Evaluates nodes whose operands are all constants, with the evaluator handed in (the kernels a run would use: same
// bits): constant folding. Results much larger than what they are made from stay unfolded: a broadcast is cheaper to
// run than to store. So do those that would stand beside large operands which are read elsewhere, too.
//   const %c0: f32[] = 0000803f     |  const %c1: f32[] = 000080bf
//   %0 = neg %c0                    |
//   %1 = add %x, %0                 |  %1 = add %x, %c1
#pragma once
#include "ir/evaluator.h"
#include "ir/graph.h"

namespace mge::pass {

bool constant_fold(Graph& g, const ir::Evaluator& evaluate);

}  // namespace mge::pass
