// The text form (DESIGN §8). Bug reports and pass tests are text; print(parse(print(g))) == print(g).
//   graph step(%x: f32[8,784]) vars(%w: f32[10,784]) {
//     const %c0: f32[] = 0000003f
//     %0 = matmul %x, %w {tb=true}                 loc train.py:31
//     %y = mul %0, %c0                             loc train.py:32 in step (backward) of net.head
//   } returns(%y) commits(%w <- %1)
// Attributes at their default are left out. A value without a name is printed as a number. Names with other characters
// than letters, digits and _.-/: are quoted: %"my name". An output called otherwise than its value reads `logits=%0`. A
// node ordered by a token ends with `token(%t0 -> %t1)`; the chain of each domain starts at `entry`. Comments run from
// # to the end of the line.
#pragma once
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace mge::ir {

struct PrintOptions {
  bool types = false;  // `: f32[8,10]` after each node; the parser checks them
  bool locations = true;
  size_t max_const_bytes = 64;  // larger constants are printed by type only and read back without data
};

std::string print(const Graph& g, const PrintOptions& opt = {});
/// One node as print() shows it, for messages.
std::string print_node(const Graph& g, NodeId n);
/// Value error "graph text 3:14: expected ..." on bad input. Metas are inferred, then the graph is verified.
Graph parse(std::string_view text);

std::string print_type(const Meta& m);  // "f32[8,10]", "qint8(0.1,0)[4]"
std::string_view short_dtype_name(DType t);

}  // namespace mge::ir
