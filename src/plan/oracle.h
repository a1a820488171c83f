// The plain interpreter: node by node, ref kernels, no views, no donation. What everything else is compared with. With
// the kernels of a program instead of ref ones it is how a graph runs without a plan of its memory.
#pragma once
#include <span>
#include <vector>

#include "ir/graph.h"
#include "kernel/run.h"

namespace mge {

struct OracleResult {
  std::vector<Buffer> outputs;
  std::vector<Buffer> vars;  // after commits
};
OracleResult interpret(const ir::Graph& g, std::span<const Buffer> inputs, std::span<const Buffer> vars = {},
                       bool ref_only = true);

}  // namespace mge
