// Puts the sizes of one call into a graph that was recorded for any: other input shapes, and with them every attribute
// that follows from sizes (Node::sizes). Sizes are computed, not solved for: metas are inferred node by node and the
// handfuls of integers that attributes wait for are evaluated on the way, so there are no symbols to simplify and
// nothing to approximate. What comes out is an ordinary graph of fixed sizes for passes and plans.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ir/evaluator.h"
#include "ir/graph.h"

namespace mge::ir {

/// The values of an input, where they are known before the graph runs (sizes that an earlier part computed).
struct KnownInput {
  size_t input = 0;
  ConstTensor value;
};

/// Throws what inference throws, with the node's line, when the graph cannot take these shapes, and a Value error that
/// names the line when a guard does not hold.
void bind(Graph& g, std::span<const Meta> inputs, std::span<const KnownInput> known, const Evaluator& evaluate);

/// The attributes of a node with the numbers that these values hold in the place of those that wait for them. A Value
/// error when one is not known.
using KnownValue = std::function<const ConstTensor*(ValueId)>;
Attrs sized_attrs(const Node& n, std::span<const SizeUse> sizes, const KnownValue& known);

/// A handful: what sizes are computed from.
bool is_handful(const Meta& m);

}  // namespace mge::ir
