#include "plan/refusals.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mge {
namespace {

using Values = std::vector<ir::ValueId>;

Values looked_at(const ir::Node& x) {
  Values out;
  const size_t last = x.op->inputs.size() - 1;
  for (size_t i = 0; i < x.inputs.size(); ++i)
    if (x.op->refuses >> std::min(i, last) & 1) out.push_back(x.inputs[i]);
  return out;
}

}  // namespace

Refusals::Refusals(const ir::Graph& g) : may_(g.n_node_ids()) {
  // By the line of the op: what it has looked at so far.
  std::map<std::tuple<std::string, int, std::string>, std::vector<Values>> seen;
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const ir::Node& x = g.node(n);
    if (!x.op->refuses) continue;
    const ir::Loc& at = g.location_of(n);
    Values values = looked_at(x);
    auto& here = seen[{at.file, at.line, at.function}];
    auto holds_all = [&](const Values& v) {
      return std::ranges::all_of(values, [&](auto id) { return std::ranges::find(v, id) != v.end(); });
    };
    if (at.note == "backward" && !at.file.empty() && std::ranges::any_of(here, holds_all)) continue;
    may_[static_cast<size_t>(n)] = true;
    all_.push_back(n);
    here.push_back(std::move(values));
  }
}

}  // namespace mge
