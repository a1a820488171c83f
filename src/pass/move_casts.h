// Where a cast stands among ops that only move elements decides how many bytes are moved: one to a wider type goes
// behind them, one to a narrower type before them. The elements are the same, so are the bits.
//   %0 = typecvt %img {dtype=float32}           |  %0 = transpose %img {perm=[0,3,1,2]}
//   %1 = transpose %0 {perm=[0,3,1,2]}          |  %1 = typecvt %0 {dtype=float32}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool move_casts(Graph& g);

}  // namespace mge::pass
