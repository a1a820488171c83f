// The passes in order. Everything on by default keeps every bit (DESIGN §9).
//   pass::optimize(g, {.opt_level = 2, .evaluate = kernel_evaluator(), .can_fuse = interp_can_fuse});
//   pass::optimize_for_inference(g, {.evaluate = kernel_evaluator(), .inference = options});
// MGE_DUMP_IR=all or after:<pass>[,<pass>...] prints the graph to stderr. Builds with MGE_DEBUG_CHECKS verify after
// each pass.
#pragma once
#include <string_view>
#include <vector>

#include "ir/evaluator.h"
#include "ir/graph.h"
#include "pass/fuse_elementwise.h"
#include "pass/options.h"

namespace mge::pass {

struct PipelineOptions {
  /// 0 nothing; 1 what holds for any sizes: dead code, common subexpressions, constants, arithmetic; 2 (default) also
  /// what goes by sizes: fusion, layouts; 3 as 2, and kernels are compiled where that takes time (the JIT's level).
  int opt_level = 2;
  ir::Evaluator evaluate = {};  // empty: no constant folding
  CanFuse can_fuse = {};        // empty: no elementwise fusion (nothing could run it)
  GraphOptimizationConfig graph_opt = {};
  InferenceOptions inference = {};  // optimize reads its layout
};

/// Runs the passes of the level; an error inside one is an internal error that names it.
void optimize(Graph& g, const PipelineOptions& opt);

/// What is done once with a graph that will only be evaluated, before it is written to a file or compiled: the passes
/// of level 1 and those of `opt.inference`. All hold for any sizes, so the graph may still be one for any. Again on the
/// result it changes nothing. Inputs and outputs keep their names and types.
void optimize_for_inference(Graph& g, const PipelineOptions& opt);

/// One pass of either list by its name, whatever the level; a Value error for one that is not there. True: it changed
/// something.
bool run_pass(std::string_view name, Graph& g, const PipelineOptions& opt);

/// Names in order, for docs and tests.
std::vector<std::string_view> pass_names(int opt_level);
std::vector<std::string_view> inference_pass_names();

}  // namespace mge::pass
