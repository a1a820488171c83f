// Evaluation keeps every element: dropout is its operand, and its generator is where it was. A dropout whose mask is
// read belongs to a gradient and stays.
//   %1, %m, %s1 = dropout %0, %s {p=0.5}     |
//   %2 = relu %1                             |  %2 = relu %0
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool remove_dropout(Graph& g);

}  // namespace mge::pass
