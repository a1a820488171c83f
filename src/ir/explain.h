// What an error says of a node: the ops the user wrote, what they were called with, and where. A node that a pass or a
// decomposition made speaks of what it stands for (Graph::stand_for).
//   try { kernel(); } catch (...) { ir::rethrow(ir::tell(g, n)); }
//   gather: index 7 is out of range ...
//     in gather(table: float32[4,3], int32[2]) {axis=0}
//     at train.py:31 in step
#pragma once
#include "ir/graph.h"

namespace mge::ir {

struct Told {
  std::string op, call, where;
};

/// The op, or the one that it checks an operand for.
std::string written_name(const Node& x);
Told tell(const Graph& g, NodeId n);
Error explained(const Told& t, ErrorKind kind, const std::string& text);
/// Inside a catch block: what is being thrown, with what `t` says added, unless it has a place already.
[[noreturn]] void rethrow(const Told& t);

}  // namespace mge::ir
