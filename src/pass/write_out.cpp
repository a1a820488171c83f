#include "pass/write_out.h"

#include <algorithm>

#include "ir/builder.h"

namespace mge::pass {
namespace {

constexpr std::string_view kOps[] = {"batch_norm_infer", "fake_quant", "lsq", "tqt"};

}  // namespace

bool write_out(Graph& g) {
  bool changed = false;
  for (bool more = true; more; changed |= more) {  // lsq and tqt are written in fake_quant
    more = false;
    for (ir::NodeId n : g.order())
      if (std::ranges::find(kOps, std::string_view(g.node(n).op->name)) != std::end(kOps))
        more |= ir::decompose_node(g, n);
  }
  return changed;
}

}  // namespace mge::pass
