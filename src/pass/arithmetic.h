// Arithmetic that costs nothing or less: what multiplies by 1, adds nothing, divides by a power of two, negates to
// subtract, and chains of integer constants. Every rule gives the same bits for every operand, -0.0, infinities and NaN
// included (a NaN is a NaN: its payload is nobody's). Rules that do not are asked for by name (docs/numerics.md).
//   %0 = div %x, %c4        |  %0 = mul %x, %c0.25
//   %1 = neg %y             |
//   %2 = add %0, %1         |  %1 = sub %0, %y
//   %3 = mul %2, %c1        |
//   %4 = sub %3, %3         |  (with rewrites "sub_self")  %2 = fill_like %1 {value=0}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

/// `rewrites`: of Rewrite (options.h).
bool arithmetic(Graph& g, bool bound = true, uint32_t rewrites = 0);

}  // namespace mge::pass
