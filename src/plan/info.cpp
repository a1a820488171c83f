#include "plan/info.h"

#include <cstdio>

#include "ir/dump.h"
#include "ir/text.h"
#include "plan/program_impl.h"

namespace mge {

std::string describe_node(const ir::Graph& g, ir::NodeId n) {
  const ir::Node& x = g.node(n);
  std::string s = x.op->name + "(";
  for (size_t i = 0; i < x.inputs.size(); ++i) s += (i ? ", " : "") + g.meta(x.inputs[i]).str();
  s += ")";
  if (x.attrs) s += " " + x.attrs->print();
  return s;
}

namespace {

double flops_of(const ir::Graph& g, ir::NodeId n) {
  const ir::Node& x = g.node(n);
  if (!x.op->cost) return x.outputs.empty() ? 0 : static_cast<double>(g.meta(x.outputs[0]).shape.numel());
  SmallVec<const Meta*, 6> in;
  for (ir::ValueId v : x.inputs) in.push_back(&g.meta(v));
  SmallVec<Meta, 4> out;
  for (ir::ValueId v : x.outputs) out.push_back(g.meta(v));
  return x.op->cost({x.op, x.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()}});
}

}  // namespace

ProgramInfo Program::info() const {
  const Impl& p = *impl_;
  p.check_graph();
  static const char* const kinds[] = {"arena", "input", "var", "const", "output"};
  const int end = static_cast<int>(p.code.size());
  ProgramInfo info;
  // Without those whose values went into an operand's.
  std::vector<int> number(p.buffers.size(), -1);
  for (auto& at : p.place)
    if (at.buffer >= 0) number[at.buffer] = 0;
  for (auto& r : p.refs) number[r.buffer] = 0;
  for (auto& c : p.code)
    if (c.workspace >= 0) number[c.workspace] = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    if (number[i] < 0) continue;
    number[i] = static_cast<int>(info.buffers.size());
    const PlanBuffer& b = p.buffers[i];
    ProgramInfo::Buffer x;
    x.kind = kinds[static_cast<int>(b.where)];
    x.device = p.homes[b.home].device.name();
    x.address = b.where == Where::Arena ? b.offset : 0;
    x.bytes = b.bytes;
    x.first = b.first;
    x.last = b.where == Where::Arena ? b.last : end;
    x.donor = b.donor;
    info.buffers.push_back(std::move(x));
  }
  for (size_t v = 0; v < p.place.size(); ++v) {
    if (p.place[v].buffer < 0 || p.graph.value(static_cast<ir::ValueId>(v)).erased) continue;
    const ir::Value& x = p.graph.value(static_cast<ir::ValueId>(v));
    info.buffers[number[p.place[v].buffer]].values.push_back(
        {static_cast<int>(v), x.name, x.producer, x.meta, order_name(x.meta.shape, p.place[v].layout)});
  }
  for (auto& c : p.converted) {
    const Meta& m = p.graph.meta(c.of);
    info.buffers[number[c.at.buffer]].values.push_back({-1, "copy", -1, m, order_name(m.shape, c.at.layout)});
  }
  for (auto& c : p.code) {
    const ir::Node& n = p.graph.node(c.node);
    ProgramInfo::Instr x;
    x.op = n.op->name;
    x.kernel = c.kernel ? c.kernel->name : c.home == c.from ? "copy" : "move";
    x.location = p.graph.location_of(c.node).str();
    x.device = p.homes[c.home].device.name();
    x.node = c.node;
    x.ns = c.ns;
    x.flops = c.kernel ? flops_of(p.graph, c.node) : 0;
    if (c.workspace >= 0) info.buffers[x.workspace = number[c.workspace]].kind = "workspace";
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i) {
      const TensorArg& a = p.args[c.first_arg + i];
      ProgramInfo::Operand o;
      o.buffer = number[p.refs[c.first_arg + i].buffer];
      o.meta.dtype = a.dtype;
      o.meta.shape = a.shape;
      o.order = order_name(a.shape, a.layout);
      if (!c.kernel && i >= c.n_in && info.buffers[o.buffer].values.empty())
        info.buffers[o.buffer].values.push_back({-1, "copy", c.node, o.meta, o.order});
      (i < c.n_in ? x.inputs : x.outputs).push_back(o);
    }
    info.instructions.push_back(std::move(x));
  }
  return info;
}

std::string PlanReport::str() const {
  return format(
      "{} instructions, {} views, {} in place, {} copies{}, {} vars donated; arena {} bytes by {}, {:.3f} of the lower "
      "bound {} (without sharing {}, saved by order {}, recomputable {}), outputs {}, constants {}{}{}, largest "
      "workspace {}; {} values channels-last",
      instrs, views, in_place, copies, copies ? format(" of {} bytes", copy_bytes) : "", donated_vars, arena_bytes,
      strategy, lower_bound ? static_cast<double>(arena_bytes) / static_cast<double>(lower_bound) : 1.0, lower_bound,
      sum_bytes, reordered_bytes, recomputable_bytes, output_bytes, const_bytes,
      converted ? format(" with {} of {} in another order", converted_bytes, converted) : "",
      prepared_bytes ? format(" and {} of them prepared", prepared_bytes) : "", workspace_bytes, channels_last);
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
  if (!ir::dump_wanted("assign_layouts")) return;
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
    s += "   " + ir::print_node(p.graph, c.node) + reason_of(p, t) + "\n";
  }
  return s;
}

}  // namespace mge
