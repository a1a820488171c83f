// Turns clusters of elementwise ops over one shape into single nodes that keep the intermediates in cache (op `fused`,
// run by jit/interp with the row functions the ops themselves use: same bits). Inputs may broadcast. An intermediate
// that is read elsewhere or escapes is a result of the node as well, and a step may be a reduction, whose order of
// additions stays that of op reduce (ADR 0023). A reduction takes along what follows it: elementwise ops on its result,
// and, along the last axes, ops on all elements and further reductions (a softmax or normalisation written in single
// ops), which are then computed a few rows at a time (ADR 0065).
//   %0 = mul %x, %y     |
//   %1 = relu %0        |  %0, %1 = fused %x, %y {region="(float32,float32) t0=mul(i0,i1) t1=relu(t0) -> t0,t1"}
//   returns(%1, %0)     |  returns(%1, %0)
// The node stands where the last op of the cluster stood; a reduction to a small result is taken to its operand. So
// nothing of size is computed earlier than it was, and an op whose result is read by something before that place, which
// cannot join itself, stays out.
#pragma once
#include <functional>

#include "ir/graph.h"

namespace mge::pass {

/// May this op with these operand types be a step? Empty: every elementwise op, and reduce.
using CanFuse = std::function<bool(const OpDef& op, const AttrsBase* attrs, std::span<const DType> in, DType out)>;

bool fuse_elementwise(Graph& g, const CanFuse& can_fuse = {});

/// Null, or why a reduction of these axes of a tensor of this shape is better left alone.
const char* refuse_reduction(const Shape& x, uint32_t axes);

}  // namespace mge::pass
