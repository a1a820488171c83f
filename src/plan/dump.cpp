// Programs as text.
#include <algorithm>
#include <cstdio>

#include "base/features.h"
#include "ir/dump.h"
#include "ir/text.h"
#include "plan/program_impl.h"

namespace mge {

std::string PlanReport::str() const {
  const double above = lower_bound ? static_cast<double>(arena_bytes) / static_cast<double>(lower_bound) : 1.0;
  return format(
             "{} instructions, {} views, {} in place{}, {} copies{}, {} vars donated; arena {} bytes by {}, {:.3f} of ",
             instrs, views, in_place, parts ? format(", {} parts in their places", parts) : "", copies,
             copies ? format(" of {} bytes", copy_bytes) : "", donated_vars, arena_bytes, strategy, above) +
         format(
             "the lower bound {} (without sharing {}, saved by order {}, recomputable {}), outputs {}, constants "
             "{}{}{}",
             lower_bound, sum_bytes, reordered_bytes, recomputable_bytes, output_bytes, const_bytes,
             converted ? format(" with {} of {} in another order", converted_bytes, converted) : "",
             prepared_bytes ? format(" and {} of them prepared", prepared_bytes) : "") +
         format(", largest workspace {}{}; {} values channels-last", workspace_bytes,
                recomputed ? format(", {} ops computed again to save memory", recomputed) : "", channels_last);
}

namespace {

const char* order_of(const TensorArg& t) { return order_name(t.shape, t.layout); }

// Why a copy is made: what it changes, and for which kernel.
std::string reason_of(const Program::Impl& p, size_t t) {
  const Instr& c = p.code[t];
  if (c.kernel || c.home != c.from) return {};
  size_t reader = t + 1;
  while (reader < p.code.size() && !(p.code[reader].kernel && p.code[reader].node == c.node)) ++reader;
  return format("  # {} to {} for {}", order_of(p.args[c.first_arg]), order_of(p.args[c.first_arg + 1]),
                reader < p.code.size() ? p.code[reader].kernel->name : "a reader");
}

}  // namespace

void Program::Impl::dump_layouts() {
  for (size_t v = 0; v < place.size(); ++v) {
    const ir::Value& x = graph.value(static_cast<ir::ValueId>(v));
    if (place[v].buffer < 0 || x.erased || x.meta.shape.rank < 3) continue;
    report.channels_last +=
        !place[v].layout.is_contiguous(x.meta.shape) && place[v].layout.is_channels_last(x.meta.shape);
  }
  if (!has("graph_text") || !ir::dump_wanted("assign_layouts")) return;
  std::string s = format("# after assign_layouts\n# program {}: {}\n", graph.name(), report.str());
  for (ir::NodeId n : graph.order()) {
    s += ir::print_node(graph, n) + "  #";
    for (ir::ValueId v : graph.node(n).outputs)
      if (place[v].buffer >= 0) s += format(" {}", order_name(graph.meta(v).shape, place[v].layout));
    s += "\n";
  }
  std::fputs(s.c_str(), stderr);
}

std::string Program::dump() const {
  require("graph_text", "the text of a program");
  const Impl& p = *impl_;
  p.check_graph();
  static const char* const kinds[] = {"arena", "in", "var", "const", "out"};
  std::string s = "program " + p.graph.name() + ": " + p.report.str() + "\n";
  for (size_t t = 0; t < p.code.size(); ++t) {
    const Instr& c = p.code[t];
    s += format("{:4} {:24}", t, c.kernel ? c.kernel->name : "copy_strided");
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
      const ArgRef& r = p.refs[c.first_arg + i];
      const PlanBuffer& b = p.buffers[r.buffer];
      s += format("{}{}{}+{}", i == c.n_in ? " -> " : " ", kinds[static_cast<int>(b.where)],
                  b.where == Where::Arena ? std::string("@") + std::to_string(b.offset)
                                          : std::to_string(b.where == Where::Output ? r.buffer : b.index),
                  r.offset);
      if (b.donor >= 0) s += format("(var{})", b.donor);
    }
    const bool again = c.kernel && std::ranges::find(p.again, c.node) != p.again.end();
    s += "   " + ir::print_node(p.graph, c.node) + reason_of(p, t) + (again ? "  # computed again" : "") + "\n";
  }
  return s;
}

}  // namespace mge
