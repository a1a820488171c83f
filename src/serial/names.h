// Names as the original gives them in dumped models: an op by the modules that were running and its type, a result by
// its op, a constant by its tensor or its value.
//   simple.linear.MatrixMul   simple.RELU[1]   bn.BatchNorm:o5   const<2>[4]   const{3,1}[7]
#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"

namespace mge::serial {

/// The ops that the original would make for a node (compat/names.h).
std::vector<std::string> opr_types(const Graph& g, ir::NodeId n);
/// Of each node by its id (empty for erased ones): the names of the ops that the original would make for it, the one
/// that gives the results last. Several of one name are numbered: name[0], name[1].
std::vector<std::vector<std::string>> opr_names(const Graph& g);
/// Gives every result and constant without a name one, and numbers those that share one.
void name_values(Graph& g);

}  // namespace mge::serial
