// Computes equal things once (common subexpressions): nodes with the same op, attributes and operands, and constants
// with the same bytes.
// Operands of commutative ops are compared in either order. Effects and random ops are never merged, nor is what
// is computed again to save memory (Node::rerun) with its first computation.
//   %0 = add %x, %y        |  %0 = add %x, %y
//   %1 = add %y, %x        |
//   %2 = mul %0, %1        |  %2 = mul %0, %0
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool cse(Graph& g);

}  // namespace mge::pass
