// One way of saying things, and nothing said twice: views of views, casts of casts, double negations, constants on the
// right of commutative ops, broadcasts that the reader makes itself. No arithmetic, so no bit changes (see arithmetic.h
// for that).
//   %0 = transpose %x {perm=[1,0]}     |
//   %1 = transpose %0 {perm=[1,0]}     |
//   %2 = neg %1                        |
//   %3 = neg %2                        |
//   %4 = mul %c0, %3                   |  %0 = mul %x, %c0
#pragma once
#include "ir/graph.h"

namespace mge::pass {

/// `bound`: the sizes are those that will run, so an op that changes none may go. Otherwise only what holds for any.
bool canonicalise(Graph& g, bool bound = true);

}  // namespace mge::pass
