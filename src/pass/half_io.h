// Values travel between ops in 16 bits: weights are stored so, inputs are cast on the way in, and what the graph gives
// is cast back, so inputs and outputs keep their types. Kernels of this project compute 16-bit tensors in float32 and
// round each result once (docs/numerics.md), so float16 "io" with float32 computation and float16 throughout are one
// thing here. An op that takes no 16-bit operands, whose operands are positions, or that has a constant the format
// cannot hold stays in float32, with casts around it. Changes values: only when InferenceOptions asks.
//   %0 = conv2d %x, %w       |  %0 = typecvt %x {dtype=float16}
//   } returns(%0)            |  %1 = conv2d %0, %w16        %2 = typecvt %1 {dtype=float32}     } returns(%2)
#pragma once
#include "ir/graph.h"

namespace mge::pass {

/// `half`: F16 or BF16. constant_fold afterwards turns the casts of weights into weights.
bool half_io(Graph& g, DType half);

}  // namespace mge::pass
