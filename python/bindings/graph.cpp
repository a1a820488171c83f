// A graph that a program makes or edits node by node; megengine.core.tensor.megbrain_graph is written on it.
#include "graph.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <functional>

#include "ir/bind.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "model.h"
#include "op/shape/shape_ops.h"
#include "original.h"
#include "pass/own_generators.h"
#include "plan/describe.h"
#include "plan/evaluate.h"
#include "serial/model.h"
#include "serial/names.h"

namespace nb = nanobind;

namespace mge::py {

using ir::kNone;

void bind_graph_nodes(nb::module_& m);

ValueId EditedGraph::check(ValueId v) const {
  MGE_CHECK(v >= 0 && static_cast<size_t>(v) < g.n_values() && !g.value(v).erased, Value,
            "graph: there is no variable {} in it.", v);
  return v;
}
NodeId EditedGraph::check_node(NodeId n) const {
  MGE_CHECK(n >= 0 && static_cast<size_t>(n) < g.n_node_ids() && !g.node(n).erased, Value,
            "graph: there is no op {} in it.", n);
  return n;
}
const std::string& EditedGraph::name(ValueId v) const {
  auto it = names.find(v);
  return it != names.end() ? it->second : g.value(v).name;
}
std::string EditedGraph::describe(ValueId v) const {
  return name(v).empty() ? format("variable {}", v) : format("variable '{}'", name(v));
}
ir::LocId EditedGraph::here() {
  const Place p = location_place(current_location());
  return p.file.empty() ? ir::kNoLoc : g.loc(p.file, p.line, p.function);
}

ValueId EditedGraph::add_input(const std::string& name, const Meta& m) {
  std::string fresh = name;
  for (int k = 1; fresh.empty() || g.find_input(fresh) != kNone || g.find_var(fresh) != kNone; ++k)
    fresh = format("{}#{}", name, k);
  const ValueId v = g.add_input(fresh, m);
  names[v] = name;
  return v;
}

const ir::ConstTensor* EditedGraph::known(ValueId v) {
  if (auto it = folds.find(v); it != folds.end()) return &it->second;
  const Meta& m = g.meta(v);
  if (const ir::Constant* c = g.constant_of(v)) return c->storage ? &(folds[v] = {m, c->storage, c->offset}) : nullptr;
  const ir::Value& x = g.value(v);
  if (x.kind != ir::ValueKind::Result || !ir::is_handful(m)) return nullptr;
  const ir::Node& n = g.node(x.producer);
  if (n.op->name == "shape_of") {
    const Shape& s = g.meta(n.inputs[0]).shape;
    Meta host = m;
    host.cn = nullptr;
    RefPtr<Storage> storage = allocate_buffer(host).storage;
    std::copy(s.begin(), s.end(), static_cast<int32_t*>(storage->ptr));
    return &(folds[v] = {m, std::move(storage), 0});
  }
  if (ir::takes_token(*n.op)) return nullptr;
  std::vector<ir::ConstTensor> in, out;
  for (ValueId i : n.inputs) {
    const ir::ConstTensor* c = ir::is_handful(g.meta(i)) ? known(i) : nullptr;
    if (!c) return nullptr;
    in.push_back(*c);
  }
  for (ValueId o : n.outputs) {
    if (!ir::is_handful(g.meta(o))) return nullptr;
    out.push_back({g.meta(o), nullptr, 0});
  }
  kernel_evaluator()(*n.op, n.attrs.get(), in, out);
  for (size_t i = 0; i < out.size(); ++i) folds[n.outputs[i]] = out[i];
  return &folds.at(v);
}

namespace {

void load(PyGraph* self, nb::object file) {
  auto graph = std::make_shared<EditedGraph>();
  if (!file.is_none()) {
    nb::bytes b = nb::cast<nb::bytes>(file);
    serial::LoadedModel m =
        serial::read_model({reinterpret_cast<const uint8_t*>(b.c_str()), b.size()}, "load_graph", read_options());
    graph->g = std::move(m.graph);
    for (auto& v : m.info.var_values)
      if (const int at = graph->g.find_var(v.name); at != kNone && v.name.starts_with("generator"))
        pass::freeze_generator(graph->g, static_cast<size_t>(at), v.meta, v.storage, v.offset);
    graph->metadata = std::move(m.info.metadata);
  }
  new (self) PyGraph{std::move(graph)};
}

ValueId add_constant(PyGraph& p, nb::handle value, const std::string& name) {
  MGE_CHECK(is_tensor(value.ptr()), Type, "graph: a constant is made of a Tensor; got {}.",
            Py_TYPE(value.ptr())->tp_name);
  Tensor& t = *tensor_of(value.ptr());
  const Buffer dense = make_contiguous(t.meta(), read_buffer(t));
  return p.get().g.add_constant_copy(t.meta(), dense.data(t.meta().dtype), name);
}

nb::list apply(PyGraph& h, nb::handle op, const std::vector<ValueId>& inputs) {
  EditedGraph& p = h.get();
  ir::GraphBuilder b(&p.g, {.loc = p.here()}, kernel_evaluator());
  std::vector<Val> in;
  for (ValueId v : inputs) in.push_back(b.val(p.check(v)));
  nb::list out;
  for (auto& v : emit_op_class(b, op.ptr(), in)) {
    if (v)
      out.append(ir::GraphBuilder::id(v));
    else
      out.append(nb::none());
  }
  return out;
}

nb::tuple value(PyGraph& h, ValueId v) {
  EditedGraph& p = h.get();
  static const char* const kKinds[] = {"input", "const", "var", "result", "token"};
  const ir::Value& x = p.g.value(p.check(v));
  const CompNode* cn = x.meta.cn ? x.meta.cn : CompNode::default_node();
  return nb::make_tuple(p.name(v), nb::steal(dtype_object(x.meta)), nb::steal(shape_tuple(x.meta.shape)),
                        nb::steal(comp_node_object(cn)), kKinds[static_cast<int>(x.kind)], x.producer);
}

nb::tuple node(PyGraph& h, NodeId n) {
  EditedGraph& p = h.get();
  const ir::Node& x = p.g.node(p.check_node(n));
  nb::dict attrs;
  if (x.attrs)
    for (auto& a : x.attrs->values()) attrs[a.name.c_str()] = nb::steal(attr_object(a.value));
  nb::list in, out, sizes;
  for (auto v : x.inputs) in.append(v);
  for (auto v : x.outputs) out.append(v);
  for (auto& s : x.sizes) sizes.append(s.value);
  return nb::make_tuple(x.op->name, attrs, in, out, p.g.location_of(n).str(), sizes);
}

// The same op of other inputs, of other values in the place of those its attributes wait for, and with other
// attributes: its results.
std::vector<ValueId> again(PyGraph& h, NodeId n, const std::vector<ValueId>& inputs, const std::vector<ValueId>& sizes,
                           nb::dict changed) {
  EditedGraph& p = h.get();
  const ir::Node& x = p.g.node(p.check_node(n));
  MGE_CHECK(inputs.size() == x.inputs.size() && sizes.size() == x.sizes.size(), Value,
            "{}: needs {} inputs and {} sizes; got {} and {}.", x.op->name, x.inputs.size(), x.sizes.size(),
            inputs.size(), sizes.size());
  MGE_CHECK(!x.op->is(kEffect), NotImplemented,
            "{}: acts on what is outside of the graph, where it has acted with the inputs it had; it cannot be given "
            "other ones.",
            x.op->name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Meta &was = p.g.meta(x.inputs[i]), &now = p.g.meta(p.check(inputs[i]));
    MGE_CHECK(was.dtype == now.dtype, Value, "{}: its input {} is {}; got {}. Cast it first, with astype.", x.op->name,
              i, dtype_name(was.dtype), dtype_name(now.dtype));
  }
  auto uses = x.sizes;
  for (size_t i = 0; i < uses.size(); ++i) uses[i].value = p.check(sizes[i]);
  // Sizes that only a run knows stay the recorded ones until then.
  SmallVec<ir::SizeUse, 1> known;
  for (auto& s : uses)
    if (p.known(s.value)) known.push_back(s);
  Attrs attrs =
      known.empty() ? x.attrs : ir::sized_attrs(x, {known.data(), known.size()}, [&](ValueId v) { return p.known(v); });
  if (changed.size()) {
    std::vector<NamedAttr> values = attrs->values();
    for (auto& s : uses)
      MGE_CHECK(!changed.contains(values[static_cast<size_t>(s.field)].name.c_str()), Value,
                "{}: its {} follows from {}; give it another input in the place of that.", x.op->name,
                values[static_cast<size_t>(s.field)].name, p.describe(s.value));
    for (auto& a : values)
      if (changed.contains(a.name.c_str())) a.value = to_attr(nb::object(changed[a.name.c_str()]).ptr());
    attrs = x.op->schema.build(x.op->name, values);
  }
  const NodeId copy = p.g.add_node(*x.op, attrs, {inputs.data(), inputs.size()}, x.loc);
  for (auto& s : uses) p.g.add_size(copy, s);
  const ir::Node &was = p.g.node(n), &now = p.g.node(copy);
  for (size_t k = 0; k < was.outputs.size(); ++k) p.g.set_name(now.outputs[k], p.name(was.outputs[k]));
  return {now.outputs.begin(), now.outputs.end()};
}

nb::object constant(PyGraph& h, ValueId v) {
  EditedGraph& p = h.get();
  const ir::Constant* c = p.g.constant_of(p.check(v));
  if (!c || !c->storage) return nb::none();
  Meta m = p.g.meta(v);
  if (!m.cn) m.cn = CompNode::default_node();
  Buffer copy = allocate_for_host(m);
  std::memcpy(copy.storage->ptr, c->data(), m.bytes());
  return nb::steal(wrap(tensor_from_host(m, std::move(copy))));
}

// The outputs as they would be with other values in the place of some: what depends on those is there once more.
std::vector<ValueId> replaced(PyGraph& h, const std::vector<ValueId>& outputs, const std::vector<ValueId>& old,
                              const std::vector<ValueId>& fresh) {
  EditedGraph& p = h.get();
  std::vector<ValueId> map(p.g.n_values());
  for (size_t v = 0; v < map.size(); ++v) map[v] = static_cast<ValueId>(v);
  for (size_t i = 0; i < old.size(); ++i) {
    const Meta &a = p.g.meta(p.check(old[i])), &b = p.g.meta(p.check(fresh[i]));
    MGE_CHECK(a.dtype == b.dtype, Value, "replace_vars: {} cannot stand for {}; cast it first.", b.str(), a.str());
    map[static_cast<size_t>(old[i])] = fresh[i];
  }
  for (NodeId n : p.g.order()) {
    std::vector<ValueId> in, sizes;
    bool changed = false;
    const ir::Node& x = p.g.node(n);
    auto mapped = [&](ValueId v) {
      const ValueId to = static_cast<size_t>(v) < map.size() ? map[static_cast<size_t>(v)] : v;
      changed |= to != v;
      return to;
    };
    for (ValueId v : x.inputs) in.push_back(mapped(v));
    for (auto& s : x.sizes) sizes.push_back(mapped(s.value));
    if (!changed) continue;
    const std::vector<ValueId> copy = again(h, n, in, sizes, {});
    for (size_t k = 0; k < copy.size(); ++k) {
      ValueId& now = map[static_cast<size_t>(p.g.node(n).outputs[k])];
      if (now == p.g.node(n).outputs[k]) now = copy[k];  // a value that is replaced itself stays so
    }
  }
  std::vector<ValueId> out;
  for (ValueId v : outputs) out.push_back(map[static_cast<size_t>(p.check(v))]);
  return out;
}

// Guards follow what an edit has made anew, and must hold of it.
void moved(PyGraph& h, const std::vector<std::pair<ValueId, ValueId>>& values) {
  EditedGraph& p = h.get();
  std::unordered_map<ValueId, ValueId> map(values.begin(), values.end());
  std::vector<ir::Guard> guards(p.g.guards().begin(), p.g.guards().end());
  for (auto& guard : guards) {
    auto it = map.find(guard.value);
    if (it == map.end()) continue;
    guard.value = it->second;
    const ir::ConstTensor* c = p.known(guard.value);
    if (c &&
        std::memcmp(static_cast<const char*>(c->storage->ptr) + c->offset, guard.want.data(), guard.want.size()) == 0)
      continue;
    Error e(ErrorKind::Value,
            "graph: the recorded function read a size as a number, or decided by one, so the graph holds for the sizes "
            "it was recorded with. Record it with the sizes that are needed.");
    e.set_location(p.g.location(guard.loc).str());
    throw e;
  }
  p.g.drop_guards();
  for (auto& guard : guards) p.g.add_guard(std::move(guard));
}

// A product or a convolution with a bias as the two ops that the original has for it: the same bits, and ops on the
// bias or before it can be seen and changed.
void split_biases(PyGraph& h) {
  EditedGraph& p = h.get();
  for (NodeId n : p.g.order()) {
    const ir::Node& x = p.g.node(n);
    const bool conv = x.op->name == "conv2d";
    if ((!conv && x.op->name != "matmul") || x.inputs.size() < 3) continue;
    ir::GraphBuilder b(&p.g, {.loc = x.loc, .before = n});
    const Val in[] = {b.val(x.inputs[0]), b.val(x.inputs[1])};
    Val y, bias = b.val(x.inputs[2]);
    b.emit(*x.op, x.attrs, in, {&y, 1});
    const Shape& s = p.g.meta(x.inputs[2]).shape;
    if (conv && s.rank == 1) bias = b.emit1("reshape", {bias}, make_attrs(ShapeAttrs{{1, s[0], 1, 1}}));
    const ValueId was = x.outputs[0], sum = ir::GraphBuilder::id(b.emit1("add", {y, bias}, nullptr));
    p.g.set_name(sum, p.name(was));
    p.g.replace_all_uses(was, sum);
    p.g.erase(n);
  }
}

// The sizes that a reshape or a broadcast gives as a constant that it reads, as in the original's graphs: it can be
// seen and set. `extract` makes them attributes again.
void split_sizes(PyGraph& h) {
  EditedGraph& p = h.get();
  for (NodeId n : p.g.order()) {
    const ir::Node& x = p.g.node(n);
    if ((x.op->name != "reshape" && x.op->name != "broadcast_to") || !x.sizes.empty()) continue;
    const Ints& shape = attrs_as<ShapeAttrs>(x.attrs.get()).shape;
    if (shape.empty()) continue;
    const std::vector<int32_t> sizes(shape.begin(), shape.end());
    Meta m;
    m.dtype = DType::I32;
    m.shape = Shape{static_cast<int64_t>(sizes.size())};
    p.g.add_size(n, {0, SizeOperand::kWhole, p.g.add_constant_copy(m, sizes.data())});
  }
}

using Named = std::vector<std::pair<std::string, ValueId>>;

// What these outputs need, and no input that they do not; inputs in the order of `first`, then in their own.
ir::Graph extract(const EditedGraph& p, const Named& outputs, const std::vector<ValueId>& first) {
  std::vector<char> needed(p.g.n_values());
  auto take = [&](ValueId v) -> char& { return needed[static_cast<size_t>(v)]; };
  const std::vector<NodeId> order = p.g.order();
  auto need = [&] {
    for (auto n = order.rbegin(); n != order.rend(); ++n) {
      const ir::Node& x = p.g.node(*n);
      bool used = false;
      for (ValueId v : x.outputs) used |= take(v);
      if (!used) continue;
      for (ValueId v : x.outputs) take(v) = true;
      for (ValueId v : x.inputs) take(v) = true;
      for (auto& s : x.sizes)
        if (!p.g.constant_of(s.value)) take(s.value) = true;  // the attribute holds a constant one
    }
  };
  for (auto& [name, v] : outputs) take(p.check(v)) = true;
  need();
  std::vector<ValueId> inputs;
  for (ValueId v : first)
    if (p.g.value(p.check(v)).kind == ir::ValueKind::Input && take(v)) inputs.push_back(v);
  for (ValueId v : p.g.inputs())
    if (take(v) && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
  // Guards about these inputs come along; those about others are of graphs that were edited away.
  std::vector<char> before = needed;
  std::vector<const ir::Guard*> guards;
  for (auto& guard : p.g.guards()) {
    needed = before;
    take(guard.value) = true;
    need();
    bool ours = true;
    for (ValueId v : p.g.inputs()) ours &= take(v) == before[static_cast<size_t>(v)];
    if (ours) guards.push_back(&guard), before = needed;
  }
  needed = before;

  ir::Graph g(p.g.name());
  std::vector<ValueId> map(p.g.n_values(), kNone);
  auto at = [&](ValueId v) -> ValueId& { return map[static_cast<size_t>(v)]; };
  for (ValueId v : inputs) {
    MGE_CHECK(g.find_input(p.name(v)) == kNone, Value,
              "dump: two inputs are named '{}'. Rename one (opr.name = ...), so that a caller can tell them apart.",
              p.name(v));
    at(v) = g.add_input(p.name(v), p.g.meta(v));
  }
  for (auto& x : p.g.vars())
    MGE_CHECK(!take(x.in), NotImplemented, "graph: '{}' is state that changes; a dumped graph holds constants.",
              p.g.value(x.in).name);
  for (auto& c : p.g.constants())
    if (c.value != kNone && take(c.value))
      at(c.value) = g.add_constant(p.g.meta(c.value), c.storage, c.offset, p.name(c.value));
  for (NodeId n : order) {
    const ir::Node& x = p.g.node(n);
    if (x.outputs.empty() || !take(x.outputs[0])) continue;
    SmallVec<ValueId, 4> in;
    for (ValueId v : x.inputs) in.push_back(at(v));
    const NodeId copy = g.add_node(*x.op, x.attrs, {in.data(), in.size()}, g.loc(p.g.location_of(n)));
    for (auto& s : x.sizes)
      if (!p.g.constant_of(s.value)) g.add_size(copy, {s.field, s.element, at(s.value)});
    for (size_t k = 0; k < x.outputs.size(); ++k) {
      at(x.outputs[k]) = g.node(copy).outputs[k];
      g.set_name(g.node(copy).outputs[k], p.name(x.outputs[k]));
    }
  }
  for (auto* guard : guards) g.add_guard({at(guard->value), guard->want, g.loc(p.g.location(guard->loc))});
  for (auto& [name, v] : outputs) {
    MGE_CHECK(g.find_output(name) == kNone, Value,
              "dump: two outputs are named '{}'. Rename one (var.name = ...), so that a caller can tell them apart.",
              name);
    g.add_output(name, at(v));
  }
  return g;
}

ModelDump dump(PyGraph& p, const Named& outputs, const std::vector<ValueId>& order, bool change,
               std::optional<uint64_t> options, std::vector<std::string> rewrites,
               std::vector<std::pair<std::string, std::string>> metadata) {
  std::vector<std::string> names;
  for (auto& [name, v] : outputs) names.push_back(name);
  return make_model_dump(extract(p.get(), outputs, order), names,
                         {change, options, std::move(rewrites), std::move(metadata)});
}

// What these outputs need, optimised for evaluation: a graph of its own.
PyGraph optimized(const PyGraph& p, const Named& outputs, uint64_t word, const std::vector<std::string>& rewrites) {
  auto made = std::make_shared<EditedGraph>();
  made->g = extract(p.get(), outputs, {});
  made->metadata = p.get().metadata;
  pass::InferenceOptions o = pass::InferenceOptions::from_word(word);
  o.rewrites = pass::parse_rewrites(rewrites);
  pass::optimize_for_inference(made->g, pipeline_options(1, {}, o));
  return PyGraph{std::move(made)};
}

}  // namespace

void bind_graph(nb::module_& m) {
  m.def(
      "inference_word",
      [](const std::vector<std::pair<std::string, bool>>& keywords) { return pass::parse_inference(keywords).word(); },
      "The option word of keywords like enable_io16xc32 (name, on), in the order given.");
  m.def(
      "layout_of_others",
      [](uint64_t word) { return std::string(pass::layout_of_others(pass::InferenceOptions::from_word(word).layout)); },
      "Whose layout an option word asks for, if not a CPU's; else empty.");
  m.def(
      "inference_keywords",
      [](uint64_t word) { return pass::inference_keywords(pass::InferenceOptions::from_word(word)); },
      "The keywords that an option word has on.");
  m.def(
      "rewrites",
      [] {
        nb::dict d;
        for (auto& r : pass::rewrite_names()) d[r.name] = r.what;
        return d;
      },
      "Rewrites that can change values, by name, and what they do.");
  nb::class_<PyGraph>(m, "Graph")
      .def("__init__", load, nb::arg("file") = nb::none())
      .def_prop_ro("key", [](PyGraph& p) { return reinterpret_cast<uintptr_t>(p.graph.get()); })
      .def_prop_ro("metadata",
                   [](PyGraph& p) {
                     nb::dict d;
                     for (auto& [k, v] : p.get().metadata) d[k.c_str()] = v;
                     return d;
                   })
      .def_prop_ro("inputs",
                   [](PyGraph& p) {
                     auto in = p.get().g.inputs();
                     return std::vector<ValueId>(in.begin(), in.end());
                   })
      .def_prop_ro("outputs",
                   [](PyGraph& p) {
                     nb::list out;
                     for (auto& o : p.get().g.outputs()) out.append(nb::make_tuple(o.name, o.value));
                     return out;
                   })
      .def("opr_names",
           [](PyGraph& p) {
             nb::dict out;
             std::vector<std::vector<std::string>> names = serial::opr_names(p.get().g);
             for (ir::NodeId n : p.get().g.order()) out[nb::int_(n)] = nb::cast(names[static_cast<size_t>(n)]);
             return out;
           })
      .def("name_values", [](PyGraph& p) { serial::name_values(p.get().g); })
      .def("scope", [](PyGraph& p, ir::NodeId n) { return p.get().g.location_of(n).scope; })
      .def("operator_name",
           [](PyGraph& p, ir::NodeId n) {  // of a file without lines, which has names of operators
             const ir::Loc& at = p.get().g.location_of(n);
             return at.line == 0 ? at.file : std::string();
           })
      .def_prop_ro("guards",
                   [](PyGraph& p) {
                     std::vector<ValueId> out;
                     for (auto& g : p.get().g.guards()) out.push_back(g.value);
                     return out;
                   })
      .def_prop_ro("text", [](PyGraph& p) { return ir::print(p.get().g); })
      .def_prop_ro("json", [](PyGraph& p) { return graph_json(p.get().g); })
      .def(
          "add_input",
          [](PyGraph& p, const std::string& name, nb::handle dtype, nb::handle shape, nb::handle device) {
            Meta meta;
            meta.dtype = to_dtype(dtype.ptr(), &meta.quant);
            const Ints sizes = to_ints(shape.ptr());
            meta.shape = Shape(sizes.data(), sizes.size());
            meta.cn = to_comp_node(device.ptr());
            return p.get().add_input(name, meta);
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("device").none())
      .def("add_constant", add_constant)
      .def("apply", apply)
      .def("again", again, nb::arg("node"), nb::arg("inputs"), nb::arg("sizes"), nb::arg("changed") = nb::dict())
      .def("moved", moved)
      .def("split_biases", split_biases)
      .def("split_sizes", split_sizes)
      .def("join", [](PyGraph& p, PyGraph& other) { join(p.graph, other.graph); })
      .def("tensor", [](PyGraph& p, ValueId v) { return nb::steal(wrap(node_tensor(p.graph, p.get().check(v)))); })
      .def("value", value)
      .def("node", node)
      .def("constant", constant)
      .def("set_name", [](PyGraph& p, ValueId v, const std::string& name) { p.get().names[p.get().check(v)] = name; })
      .def("replaced", replaced)
      .def("optimized", optimized, nb::arg("outputs"), nb::arg("word"),
           nb::arg("rewrites") = std::vector<std::string>{})
      .def("dump", dump, nb::arg("outputs"), nb::arg("inputs"), nb::arg("change"), nb::arg("options").none(),
           nb::arg("rewrites"), nb::arg("metadata"));
  bind_graph_nodes(m);
}

}  // namespace mge::py
