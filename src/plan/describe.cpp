#include "plan/describe.h"

#include <algorithm>

#include "base/json_text.h"
#include "op/elementwise/fused.h"
#include "plan/program_impl.h"

namespace mge {
namespace {

// What one graph adds to the numbers of ops and variables.
struct Ids {
  int64_t base = 0, nodes = 0, values = 0, program = 0;
  explicit Ids(const ir::Graph& g, int64_t from = 0, int64_t number = 0)
      : base(from),
        nodes(static_cast<int64_t>(g.n_node_ids())),
        values(static_cast<int64_t>(g.n_values())),
        program(number) {}
  int64_t node(ir::NodeId n) const { return base + n; }
  int64_t var(ir::ValueId v) const { return base + nodes + v; }
  int64_t provider(ir::ValueId v) const { return base + nodes + values + v; }  // of an input, constant or state
  int64_t copy(size_t instr) const { return base + nodes + 2 * values + static_cast<int64_t>(instr); }
  int64_t end(size_t instrs) const { return copy(instrs); }
};

std::string text_of(int64_t id) { return std::to_string(id); }

void ids(JsonText& j, std::string_view key, const Ids& id, std::span<const ir::ValueId> values) {
  j.key(key).open('[');
  for (auto v : values) j.text(text_of(id.var(v)));
  j.close();
}

void numbers(JsonText& j, std::string_view key, std::span<const int64_t> n) {
  j.key(key).open('[');
  for (int64_t x : n) j.number(x);
  j.close();
}

std::span<const int64_t> sizes(const Shape& s) { return {s.begin(), s.end()}; }

void attribute(JsonText& j, const NamedAttr& a) {
  j.key(a.name);
  if (auto* b = std::get_if<bool>(&a.value))
    j.boolean(*b);
  else if (auto* i = std::get_if<int64_t>(&a.value))
    j.number(*i);
  else if (auto* d = std::get_if<double>(&a.value))
    j.real(*d);
  else if (auto* s = std::get_if<std::string>(&a.value))
    j.text(*s);
  else if (auto* n = std::get_if<Ints>(&a.value)) {
    j.open('[');
    for (int64_t x : *n) j.number(x);
    j.close();
  } else {
    j.text(print_attr(a.value));
  }
}

void attributes(JsonText& j, std::string_view key, const AttrsBase* attrs) {
  j.key(key).open('{');
  if (attrs)
    for (auto& a : attrs->values())
      if (a.name != "region") attribute(j, a);  // told as steps
  j.close();
}

double flops_of(const ir::Graph& g, const ir::Node& n) {
  if (n.op->is(kView) || n.outputs.empty()) return 0;
  std::vector<const Meta*> in;
  for (auto v : n.inputs) in.push_back(&g.meta(v));
  std::vector<Meta> out;
  for (auto v : n.outputs) out.push_back(g.meta(v));
  if (n.op->cost) return n.op->cost({n.op, n.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()}});
  double most = 0;
  for (auto& m : out) most = std::max(most, static_cast<double>(m.shape.numel()));
  return most;
}

size_t bytes_of(const ir::Graph& g, const ir::Node& n) {
  size_t bytes = 0;
  for (auto v : n.inputs) bytes += g.meta(v).bytes();
  for (auto v : n.outputs) bytes += g.meta(v).bytes();
  return bytes;
}

void location(JsonText& j, const ir::Loc& l) {
  j.key("location").open('{').key("file").text(l.file).key("line").number(l.line);
  j.key("function").text(l.function).key("note").text(l.note).close();
  // Scopes come with the location where the graph knows them.
  [&](const auto& loc) {
    if constexpr (requires { loc.scope; }) j.key("scope").text(loc.scope);
  }(l);
}

// The ops inside a fused one: "i0" is its first input, "t0" the result of its first step.
void steps(JsonText& j, const ir::Node& n) {
  auto* region = fused_region(n.attrs.get());
  if (!region) return;
  auto arg = [](int a) { return a >= 0 ? format("i{}", a) : format("t{}", -1 - a); };
  j.key("steps").open('[');
  for (auto& s : region->steps) {
    j.open('{').key("op").text(s.op->name).key("dtype").text(dtype_name(s.dtype)).key("args").open('[');
    for (int a : s.args) j.text(arg(a));
    j.close();
    attributes(j, "attrs", s.attrs.get());
    j.close();
  }
  j.close().key("results").open('[');
  for (int a : region->outputs) j.text(arg(a));
  j.close();
}

std::string name_of(const ir::Graph& g, ir::ValueId v) {
  const std::string& name = g.value(v).name;
  return name.empty() ? format("var{}", v) : name;
}

void provider(JsonText& j, const ir::Graph& g, const Ids& id, ir::ValueId v, const char* type) {
  const std::string n = text_of(id.provider(v));
  j.key(n).open('{').key("node_type").text("operator").key("id").text(n).key("name").text(name_of(g, v));
  j.key("type").text(type).key("extra").open('{').close().key("input").open('[').close();
  ids(j, "output", id, {&v, 1});
  j.key("waiting_spec").null().close();
}

// Instructions that belong to a node: its kernel's, and those that bring its operands into another layout.
struct Code {
  std::vector<int> of_node;  // the kernel's, or -1: a view, or nothing is left to do
  std::vector<size_t> copies;
};
Code code_of(const Program::Impl& p) {
  Code c;
  c.of_node.assign(p.graph.n_node_ids(), -1);
  for (size_t t = 0; t < p.code.size(); ++t)
    if (p.code[t].kernel && p.code[t].node != ir::kNone)
      c.of_node[static_cast<size_t>(p.code[t].node)] = static_cast<int>(t);
    else
      c.copies.push_back(t);
  return c;
}

void operators(JsonText& j, const ir::Graph& g, const Ids& id, const Program::Impl* p) {
  const Code code = p ? code_of(*p) : Code{};
  for (auto v : g.inputs()) provider(j, g, id, v, "Host2DeviceCopy");
  for (auto& v : g.vars()) provider(j, g, id, v.in, "SharedDeviceTensor");
  for (auto& c : g.constants())
    if (c.value != ir::kNone) provider(j, g, id, c.value, "ImmutableTensor");
  for (auto n : g.order()) {
    const ir::Node& x = g.node(n);
    const std::string key = text_of(id.node(n));
    j.key(key).open('{').key("node_type").text("operator").key("id").text(key);
    j.key("name").text(x.outputs.empty() ? x.op->name : name_of(g, x.outputs[0])).key("type").text(x.op->name);
    j.key("extra").open('{');
    attributes(j, "attrs", x.attrs.get());
    location(j, g.location_of(n));
    steps(j, x);
    if (x.op->is(kElementwise)) j.key("elementwise").boolean(true);
    j.key("flops").real(flops_of(g, x)).key("bytes").number(static_cast<int64_t>(bytes_of(g, x)));
    if (p) {
      const int t = code.of_node[static_cast<size_t>(n)];
      j.key("program").number(id.program).key("instruction").number(t);
      j.key("kernel");
      if (t < 0)
        j.null();
      else
        j.text(p->code[static_cast<size_t>(t)].kernel->name);
      j.key("estimate").real(t < 0 ? 0 : static_cast<double>(p->code[static_cast<size_t>(t)].ns) / 1e9);
    }
    j.close();
    ids(j, "input", id, {x.inputs.begin(), x.inputs.end()});
    ids(j, "output", id, {x.outputs.begin(), x.outputs.end()});
    j.key("waiting_spec").null().close();
  }
  for (size_t t : code.copies) {
    const Instr& c = p->code[t];
    const std::string key = text_of(id.copy(t));
    j.key(key).open('{').key("node_type").text("operator").key("id").text(key).key("name").text("relayout");
    j.key("type").text("copy").key("extra").open('{').key("program").number(id.program);
    j.key("instruction").number(static_cast<int64_t>(t));
    j.key("kernel").text("copy_strided").key("estimate").real(static_cast<double>(c.ns) / 1e9);
    if (c.node != ir::kNone) j.key("for").text(text_of(id.node(c.node)));
    j.close();
    const int from = p->refs[c.first_arg].value;
    j.key("input").open('[');
    if (from >= 0) j.text(text_of(id.var(from)));
    j.close().key("output").open('[').close().key("waiting_spec").null().close();
  }
}

std::string dtype_title(DType t) {
  std::string name(dtype_name(t));
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

void layout(JsonText& j, const Meta& m, const Layout& l) {
  j.key("layout").open('{');
  numbers(j, "shape", sizes(m.shape));
  j.key("stride").open('[');
  for (int i = 0; i < m.shape.rank; ++i) j.number(l.stride[i]);
  j.close().key("dtype").text(dtype_title(m.dtype)).close();
}

std::string chunk_name(int64_t base, int buffer) { return format("chk{}", base + buffer); }

void variables(JsonText& j, const ir::Graph& g, const Ids& id, const Program::Impl* p) {
  static const char* const kinds[] = {"input", "const", "var", "result", "token"};
  for (ir::ValueId v = 0; v < static_cast<ir::ValueId>(g.n_values()); ++v) {
    const ir::Value& x = g.value(v);
    if (x.erased || x.kind == ir::ValueKind::Token) continue;
    const std::string key = text_of(id.var(v));
    const CompNode* cn = x.meta.cn ? x.meta.cn : CompNode::default_node();
    j.key(key).open('{').key("node_type").text("var").key("id").text(key).key("name").text(name_of(g, v));
    j.key("comp_node").text(cn->physical).key("kind").text(kinds[static_cast<int>(x.kind)]);
    j.key("dtype").text(dtype_name(x.meta.dtype));
    numbers(j, "shape", sizes(x.meta.shape));
    j.key("mem_plan");
    const Place* at = p ? &p->place[static_cast<size_t>(v)] : nullptr;
    if (at && at->buffer >= 0) {
      j.open('{').key("mem_chunk_id").text(chunk_name(id.base, at->buffer));
      layout(j, x.meta, at->layout);
      j.key("order").text(order_name(x.meta.shape, at->layout));
      j.key("offset_byte").number(static_cast<int64_t>(dtype_bytes(x.meta.dtype, at->layout.offset))).close();
    } else {
      j.null();
    }
    j.key("flag").open('[').close().key("dev_ptr").null().key("prev_dev_ptr").number(0);
    j.key("force_update_src").null().key("mem_readonly_fwd_src").null();
    j.key("static_infer_tags").open('{').key("SHAPE").open('{').key("node_type").text("static_infer_tag");
    j.key("infer_type").text("RT_STATIC").key("deps").open('[').close();
    numbers(j, "inferred_result", sizes(x.meta.shape));
    j.close().close().close();
  }
}

void chunks(JsonText& j, const Ids& id, const Program::Impl& p) {
  static const char* const kinds[] = {"arena", "input", "var", "const", "output"};
  std::vector<int> owner(p.buffers.size(), -1);
  for (size_t v = 0; v < p.place.size(); ++v) {
    const int b = p.place[v].buffer;
    if (b >= 0 && owner[static_cast<size_t>(b)] < 0) owner[static_cast<size_t>(b)] = static_cast<int>(v);
  }
  // Without those whose values went into an operand's.
  std::vector<bool> scratch(p.buffers.size()), used(p.buffers.size());
  for (auto& c : p.code)
    if (c.workspace >= 0) scratch[static_cast<size_t>(c.workspace)] = true;
  for (auto& r : p.refs) used[static_cast<size_t>(r.buffer)] = true;
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    const PlanBuffer& x = p.buffers[b];
    if (!used[b] && !scratch[b] && owner[b] < 0) continue;
    const std::string key = chunk_name(id.base, static_cast<int>(b));
    j.key(key).open('{').key("node_type").text("mem_chunk").key("id").text(key);
    j.key("size").number(static_cast<int64_t>(x.bytes)).key("owner_var");
    if (owner[b] < 0)
      j.null();
    else
      j.text(text_of(id.var(owner[b])));
    j.key("dev_ptr").null().key("kind").text(scratch[b] ? "workspace" : kinds[static_cast<int>(x.where)]);
    j.key("program")
        .number(id.program)
        .key("arena")
        .number(x.home)
        .key("address")
        .number(static_cast<int64_t>(x.offset));
    j.key("first").number(x.first).key("last").number(std::min<int64_t>(x.last, static_cast<int64_t>(p.code.size())));
    j.key("donor").number(x.donor).close();
  }
}

void sequence(JsonText& j, const Ids& id, const Program::Impl& p) {
  for (size_t t = 0; t < p.code.size(); ++t)
    j.text(text_of(p.code[t].kernel && p.code[t].node != ir::kNone ? id.node(p.code[t].node) : id.copy(t)));
}

void report(JsonText& j, const Program::Impl& p) {
  const PlanReport& r = p.report;
  auto bytes = [&](const char* key, size_t n) { j.key(key).number(static_cast<int64_t>(n)); };
  j.open('{').key("name").text(p.graph.name()).key("strategy").text(r.strategy);
  bytes("arena_bytes", r.arena_bytes);
  bytes("lower_bound", r.lower_bound);
  bytes("sum_bytes", r.sum_bytes);
  bytes("output_bytes", r.output_bytes);
  bytes("const_bytes", r.const_bytes);
  bytes("converted_bytes", r.converted_bytes);
  bytes("prepared_bytes", r.prepared_bytes);
  bytes("copy_bytes", r.copy_bytes);
  bytes("workspace_bytes", r.workspace_bytes);
  bytes("reordered_bytes", r.reordered_bytes);
  bytes("recomputable_bytes", r.recomputable_bytes);
  j.key("instructions").number(r.instrs).key("views").number(r.views).key("in_place").number(r.in_place);
  j.key("parts").number(r.parts);
  j.key("copies").number(r.copies).key("donated_vars").number(r.donated_vars);
  j.key("converted").number(r.converted).key("channels_last").number(r.channels_last).key("reordered");
  j.number(r.reordered);
  j.key("recomputed").number(r.recomputed);
  j.key("estimate").real(p.total_ns / 1e9).close();
}

void footprint(JsonText& j, const ir::Graph& g, const ir::Node& n) {
  j.open('{').key("memory").number(static_cast<int64_t>(bytes_of(g, n))).key("computation");
  if (n.op->is(kView))
    j.null();
  else
    j.number(static_cast<int64_t>(flops_of(g, n)));
  j.key("in_shapes").open('[');
  for (auto v : n.inputs) j.raw(g.meta(v).shape.str());
  j.close().key("out_shapes").open('[');
  for (auto v : n.outputs) j.raw(g.meta(v).shape.str());
  j.close();
  attributes(j, "param", n.attrs.get());
  j.close();
}

struct Watched {
  const Program::Impl* p;
  Ids ids;
};

void times(JsonText& j, std::span<const Watched> all, bool host) {
  int64_t origin = INT64_MAX;
  for (auto& w : all)
    for (auto& t : w.p->times)
      if (t.runs) origin = std::min(origin, t.begin);
  j.key(host ? "host" : "device").open('{');
  for (auto& [p, id] : all)
    for (size_t i = 0; i < p->times.size(); ++i) {
      const InstrTime& t = p->times[i];
      if (!t.runs) continue;
      const Instr& c = p->code[i];
      j.key(text_of(c.kernel && c.node != ir::kNone ? id.node(c.node) : id.copy(i))).open('{');
      const Home& h = p->homes[static_cast<size_t>(c.home)];
      j.key(host ? "main" : h.queue ? h.device.name() : CompNode::default_node()->physical).open('{');
      const double begin = static_cast<double>(t.begin - origin) / 1e9, end = static_cast<double>(t.end - origin) / 1e9;
      j.key("start").real(begin).key("kern").real(begin).key("end").real(end).close().close();
    }
  j.close();
}

}  // namespace

std::string graph_json(const ir::Graph& g) {
  const Ids id(g);
  JsonText j;
  j.open('{').key("operator").open('{');
  operators(j, g, id, nullptr);
  j.close().key("var").open('{');
  variables(j, g, id, nullptr);
  j.close().key("mem_chunk").open('{').close().key("comp_seq").open('[');
  for (auto n : g.order()) j.text(text_of(id.node(n)));
  j.close();
  std::vector<ir::ValueId> out;
  for (auto& o : g.outputs()) out.push_back(o.value);
  ids(j, "outputs", id, out);
  j.key("output_names").open('[');
  for (auto& o : g.outputs()) j.text(o.name);
  j.close();
  return j.close().str();
}

namespace {

std::vector<Watched> numbered(std::span<const RefPtr<Program>> programs) {
  std::vector<Watched> all;
  int64_t base = 0;
  for (auto& p : programs) {
    all.push_back({p->impl(), Ids(p->graph(), base, static_cast<int64_t>(all.size()))});
    base = all.back().ids.end(p->n_instrs());
  }
  return all;
}

}  // namespace

std::string graph_exec_json(std::span<const RefPtr<Program>> programs) {
  for (auto& p : programs) p->impl()->check_graph();
  const std::vector<Watched> all = numbered(programs);
  JsonText j;
  j.open('{').key("operator").open('{');
  for (auto& [p, id] : all) operators(j, p->graph, id, p);
  j.close().key("var").open('{');
  for (auto& [p, id] : all) variables(j, p->graph, id, p);
  j.close().key("mem_chunk").open('{');
  for (auto& [p, id] : all) chunks(j, id, *p);
  j.close().key("comp_seq").open('[');
  for (auto& [p, id] : all) sequence(j, id, *p);
  j.close().key("outputs").open('[');
  for (auto& [p, id] : all)
    for (auto& o : p->graph.outputs()) j.text(text_of(id.var(o.value)));
  j.close().key("output_names").open('[');
  for (auto& [p, id] : all)
    for (auto& o : p->graph.outputs()) j.text(o.name);
  j.close().key("programs").open('[');
  for (auto& [p, id] : all) report(j, *p);
  return j.close().close().str();
}

std::string profile_json(std::span<const RefPtr<Program>> programs) {
  const std::vector<Watched> all = numbered(programs);
  JsonText j;
  j.open('{').key("graph_exec").raw(graph_exec_json(programs));
  j.key("profiler").open('{');
  times(j, all, false);
  times(j, all, true);
  j.key("opr_footprint").open('{');
  for (auto& [p, id] : all)
    for (auto n : p->graph.order()) {
      j.key(text_of(id.node(n)));
      footprint(j, p->graph, p->graph.node(n));
    }
  j.close().key("opr_internal_pf").open('{').close();
  // Not of the last run alone: means, for whoever draws them.
  int64_t runs = 0;
  for (auto& [p, id] : all)
    for (auto& t : p->times) runs = std::max(runs, t.runs);
  j.key("runs").number(runs).key("average").open('{');
  for (auto& [p, id] : all)
    for (size_t i = 0; i < p->times.size(); ++i)
      if (p->times[i].runs) {
        const Instr& c = p->code[i];
        j.key(text_of(c.kernel && c.node != ir::kNone ? id.node(c.node) : id.copy(i)));
        j.real(static_cast<double>(p->times[i].total) / 1e9 / p->times[i].runs);
      }
  return j.close().close().close().str();
}

std::string static_memory_json(std::span<const RefPtr<Program>> programs) {
  for (auto& p : programs) p->impl()->check_graph();
  JsonText j;
  j.open('{').key("chunk").open('{');
  int64_t number = 0, time = 0;
  size_t top = 0;
  for (auto& p : programs) {
    size_t bytes = 0;
    for (auto& h : p->impl()->homes) bytes += h.bytes;
    top = std::max(top, bytes);
  }
  auto chunk = [&](const char* type, int64_t begin, int64_t end, size_t from, size_t bytes) {
    const std::string id = text_of(number++);
    j.key(id).open('{').key("id").text(id).key("type").text(type);
    j.key("time_begin").text(text_of(begin)).key("time_end").text(text_of(end));
    j.key("logic_addr_begin").text(std::to_string(from)).key("logic_addr_end").text(std::to_string(from + bytes));
    j.key("overwrite_dest_id").text("-1").close();
  };
  int64_t last = 0;
  for (auto& p : programs) last += static_cast<int64_t>(p->n_instrs());
  for (auto& p : programs) {
    const Program::Impl& x = *p->impl();
    std::vector<size_t> base;  // arenas one above the other
    for (size_t h = 0, at = 0; h < x.homes.size(); at += x.homes[h++].bytes) base.push_back(at);
    for (auto& b : x.buffers) {
      if (b.where == Where::Arena && b.bytes)
        chunk("static_mem", time + std::max(b.first, 0), time + b.last + 1,
              base[static_cast<size_t>(b.home)] + b.offset, b.bytes);
      if (b.where == Where::Const && b.bytes) {
        chunk("weight_mem", 0, last, top, b.bytes);
        top += b.bytes;
      }
    }
    time += static_cast<int64_t>(p->n_instrs());
  }
  j.close().key("opr").open('{');
  int64_t seq = 0;
  for (auto& p : programs)
    for (auto& c : p->impl()->code) {
      const ir::Graph& g = p->graph();
      const bool copy = !c.kernel || c.node == ir::kNone;
      const std::string name = copy                             ? "relayout"
                               : g.node(c.node).outputs.empty() ? g.node(c.node).op->name
                                                                : name_of(g, g.node(c.node).outputs[0]);
      const std::string id = text_of(seq++);
      j.key(id).open('{').key("id").text(id).key("name").text(name).close();
    }
  return j.close().close().str();
}

}  // namespace mge
