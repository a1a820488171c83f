// Removes nodes whose results nobody reads (dead code), and constants nobody uses. Nodes with kEffect stay.
//   %0 = exp %x            |
//   %1 = neg %x            |  %1 = neg %x
//   } returns(%1)          |  } returns(%1)
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool dce(Graph& g);  // true when something changed; so for every pass

}  // namespace mge::pass
