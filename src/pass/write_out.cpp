#include "pass/write_out.h"

#include <algorithm>
#include <span>

#include "ir/builder.h"

namespace mge::pass {
namespace {

constexpr std::string_view kBatchNorm = "batch_norm_infer", kOps[] = {kBatchNorm, "fake_quant", "lsq", "tqt"};

bool write_these_out(Graph& g, std::span<const std::string_view> ops) {
  bool changed = false;
  for (bool more = true; more; changed |= more) {  // lsq and tqt are written in fake_quant
    more = false;
    for (ir::NodeId n : g.order())
      if (std::ranges::find(ops, std::string_view(g.node(n).op->name)) != ops.end()) more |= ir::decompose_node(g, n);
  }
  return changed;
}

}  // namespace

bool write_out(Graph& g) { return write_these_out(g, kOps); }
bool write_out_batch_norms(Graph& g) { return write_these_out(g, {&kBatchNorm, 1}); }

}  // namespace mge::pass
