// Less memory for some time: what cheap ops make before the peak and others read after it is dropped in between and
// made again.
//   a = exp x                      a = exp x
//   b = matmul a, w                b = matmul a, w
//   ... the peak ...          ->   ... the peak, without a ...
//   g = mul a, gb                  a1 = exp x
//                                  g = mul a1, gb
// Only ops that work element by element, from operands that are there anyway. The bits are the same.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace mge {

/// As long as the order of the graph needs more than `target` bytes of intermediates at once, as far as the graph
/// tells, and this helps. Returns the nodes that compute again.
std::vector<ir::NodeId> recompute_for_memory(ir::Graph& g, size_t target);

}  // namespace mge
