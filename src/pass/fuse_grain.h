// Coarser ops for what is written in finer ones: a sum divided by its count is a mean, and a reduction over what a
// reshape has joined is one over the axes themselves (global pooling written with reshape). Same bits: `mean` divides
// the same sum once, and reduce joins neighbouring axes itself. In 16 bits the sum would be rounded before the
// division, so there it is asked for by name ("sum_to_mean").
//   %0 = reshape %x {shape=[8,64,49]}      |
//   %1 = reduce %0 {axes=[2]}              |
//   %2 = div %1, %c49                      |  %2 = reduce %x {mode="mean", axes=[2,3]}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool fuse_grain(Graph& g, bool bound = true, uint32_t rewrites = 0);

}  // namespace mge::pass
