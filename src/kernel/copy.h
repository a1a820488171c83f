// Strided copies of any dtype: the move behind reshape, transpose, contiguous() and export.
#pragma once
#include "kernel/kernel.h"

namespace mge {

/// dst[i] = src[i] over dst.shape (== src.shape); dtypes equal; either side may be strided, dst without overlap.
void copy_strided(const TensorArg& src, const TensorArg& dst);

/// Strided iteration with adjacent dims merged. Operand 0 is usually the output.
struct LoopNest {
  int rank = 0;
  int operands = 0;
  int64_t size[kMaxRank];
  int64_t stride[4][kMaxRank];  // per operand, in elements
};
/// Operands broadcast to `shape` (missing leading dims and size-1 dims get stride 0); dims of size 1 dropped, mergeable
/// neighbours merged, so a contiguous case has rank 1 (0 for a single element).
LoopNest make_loop_nest(const Shape& shape, std::span<const TensorArg* const> operands);

}  // namespace mge
