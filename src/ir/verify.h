// Proves that a graph is well formed: definitions precede uses, arity and types agree with the op's infer, use lists,
// order links and the token chain are consistent. Throws an internal error that names the node.
#pragma once
#include "ir/graph.h"

namespace mge::ir {

struct VerifyOptions {
  bool infer = true;  // re-run infer and compare metas; off for speed on huge graphs
};
void verify(const Graph& g, const VerifyOptions& opt = {});

}  // namespace mge::ir
