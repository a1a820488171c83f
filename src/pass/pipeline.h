// The passes in order. Everything on by default keeps every bit (DESIGN §9).
//   pass::optimize(g, {.opt_level = 2, .evaluate = kernel_evaluator(), .can_fuse = interp_can_fuse});
// MGE_DUMP_IR=all or after:<pass>[,<pass>...] prints the graph to stderr. Builds with MGE_DEBUG_CHECKS verify after
// each pass.
#pragma once
#include <string_view>
#include <vector>

#include "ir/evaluator.h"
#include "ir/graph.h"
#include "pass/fuse_elementwise.h"

namespace mge::pass {

struct PipelineOptions {
  /// 0 nothing; 1 dead code, common subexpressions, constants; 2 (default) also fusion; 3 as 2 today (the JIT's level).
  int opt_level = 2;
  ir::Evaluator evaluate = {};  // empty: no constant folding
  CanFuse can_fuse = {};        // empty: no elementwise fusion (nothing could run it)
};

/// Runs the passes of the level; an error inside one is an internal error that names it.
void optimize(Graph& g, const PipelineOptions& opt);

/// Names in order, for docs and tests.
std::vector<std::string_view> pass_names(int opt_level);

}  // namespace mge::pass
