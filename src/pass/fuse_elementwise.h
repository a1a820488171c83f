// Turns clusters of elementwise ops over one shape into single nodes that keep the intermediates in cache (op `fused`,
// run by jit/interp with the row functions the ops themselves use: same bits). Inputs may broadcast; an intermediate
// that is read outside the cluster, or escapes, ends it.
//   %0 = mul %x, %y        |
//   %1 = add %0, %x        |
//   %2 = relu %1           |  %2 = fused %x, %y {region="(float32,float32) t0=mul(i0,i1) t1=add(t0,i0) t2=relu(t1)"}
#pragma once
#include <functional>

#include "ir/graph.h"

namespace mge::pass {

/// May this op with these operand types be a step? Empty: every elementwise op.
using CanFuse = std::function<bool(const OpDef& op, const AttrsBase* attrs, std::span<const DType> in, DType out)>;

bool fuse_elementwise(Graph& g, const CanFuse& can_fuse = {});

}  // namespace mge::pass
