// A graph that a program makes or edits node by node; megengine.core.tensor.megbrain_graph is written on it.
#include "ir/graph.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "common.h"
#include "eager/trace.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "megengine/version.h"
#include "original.h"
#include "plan/evaluate.h"
#include "serial/model.h"
#include "serial/xxh64.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

using ir::kNone;
using ir::ValueId;

struct PyGraph {
  ir::Graph g;
  std::vector<std::pair<std::string, std::string>> metadata;

  ValueId check(ValueId v) const {
    MGE_CHECK(v >= 0 && static_cast<size_t>(v) < g.n_values() && !g.value(v).erased, Value,
              "graph: there is no variable {} in it.", v);
    return v;
  }
  ir::LocId here() {
    const Place p = location_place(current_location());
    return p.file.empty() ? ir::kNoLoc : g.loc(p.file, p.line, p.function);
  }
};

void load(PyGraph* self, nb::object file) {
  if (file.is_none()) {
    new (self) PyGraph{ir::Graph("main"), {}};
    return;
  }
  nb::bytes b = nb::cast<nb::bytes>(file);
  serial::LoadedModel m = serial::read_model({reinterpret_cast<const uint8_t*>(b.c_str()), b.size()}, "load_graph", read_options());
  new (self) PyGraph{std::move(m.graph), std::move(m.info.metadata)};
}

ValueId add_constant(PyGraph& p, nb::handle value, const std::string& name) {
  MGE_CHECK(is_tensor(value.ptr()), Type, "graph: a constant is made of a Tensor; got {}.",
            Py_TYPE(value.ptr())->tp_name);
  Tensor& t = *tensor_of(value.ptr());
  const Buffer dense = make_contiguous(t.meta(), read_buffer(t));
  return p.g.add_constant_copy(t.meta(), dense.data(t.meta().dtype), name);
}

nb::list apply(PyGraph& p, nb::handle op, const std::vector<ValueId>& inputs) {
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

nb::tuple value(PyGraph& p, ValueId v) {
  static const char* const kKinds[] = {"input", "const", "var", "result", "token"};
  const ir::Value& x = p.g.value(p.check(v));
  const CompNode* cn = x.meta.cn ? x.meta.cn : CompNode::default_node();
  return nb::make_tuple(x.name, nb::steal(dtype_object(x.meta)), nb::steal(shape_tuple(x.meta.shape)),
                        nb::steal(comp_node_object(cn)), kKinds[static_cast<int>(x.kind)], x.producer);
}

nb::tuple node(PyGraph& p, ir::NodeId n) {
  MGE_CHECK(n >= 0 && static_cast<size_t>(n) < p.g.n_node_ids() && !p.g.node(n).erased, Value,
            "graph: there is no op {} in it.", n);
  const ir::Node& x = p.g.node(n);
  nb::dict attrs;
  if (x.attrs)
    for (auto& a : x.attrs->values()) attrs[a.name.c_str()] = nb::steal(attr_object(a.value));
  nb::list in, out;
  for (auto v : x.inputs) in.append(v);
  for (auto v : x.outputs) out.append(v);
  return nb::make_tuple(x.op->name, attrs, in, out, p.g.location_of(n).str());
}

nb::object constant(PyGraph& p, ValueId v) {
  const ir::Constant* c = p.g.constant_of(p.check(v));
  if (!c || !c->storage) return nb::none();
  Meta m = p.g.meta(v);
  if (!m.cn) m.cn = CompNode::default_node();
  Buffer copy = allocate_for_host(m);
  std::memcpy(copy.storage->ptr, c->data(), m.bytes());
  return nb::steal(wrap(tensor_from_host(m, std::move(copy))));
}

// The outputs as they would be with other values in the place of some: what depends on those is there once more.
std::vector<ValueId> replaced(PyGraph& p, const std::vector<ValueId>& outputs, const std::vector<ValueId>& old,
                              const std::vector<ValueId>& fresh) {
  std::vector<ValueId> map(p.g.n_values());
  for (size_t v = 0; v < map.size(); ++v) map[v] = static_cast<ValueId>(v);
  for (size_t i = 0; i < old.size(); ++i) {
    const Meta &a = p.g.meta(p.check(old[i])), &b = p.g.meta(p.check(fresh[i]));
    MGE_CHECK(a.dtype == b.dtype, Value, "replace_vars: {} cannot stand for {}; cast it first.", b.str(), a.str());
    map[static_cast<size_t>(old[i])] = fresh[i];
  }
  for (ir::NodeId n : p.g.order()) {
    SmallVec<ValueId, 4> in;
    bool changed = false;
    const ir::Node& x = p.g.node(n);
    auto mapped = [&](ValueId v) {
      const ValueId to = static_cast<size_t>(v) < map.size() ? map[static_cast<size_t>(v)] : v;
      changed |= to != v;
      return to;
    };
    for (ValueId v : x.inputs) in.push_back(mapped(v));
    auto sizes = x.sizes;
    for (auto& s : sizes) s.value = mapped(s.value);
    if (!changed) continue;
    MGE_CHECK(!ir::takes_token(*x.op), NotImplemented, "replace_vars: {} draws or acts; it cannot be there twice.",
              x.op->name);
    const ir::NodeId copy = p.g.add_node(*x.op, x.attrs, {in.data(), in.size()}, x.loc);
    for (auto& s : sizes) p.g.add_size(copy, s);
    for (size_t k = 0; k < p.g.node(n).outputs.size(); ++k) {
      const ValueId was = p.g.node(n).outputs[k];
      // A value that is replaced itself stays so.
      if (map[static_cast<size_t>(was)] == was) map[static_cast<size_t>(was)] = p.g.node(copy).outputs[k];
      p.g.set_name(p.g.node(copy).outputs[k], p.g.value(was).name);
    }
  }
  std::vector<ValueId> out;
  for (ValueId v : outputs) out.push_back(map[static_cast<size_t>(p.check(v))]);
  return out;
}

// What these outputs need, and no input that they do not.
ir::Graph extract(const PyGraph& p, const std::vector<std::pair<std::string, ValueId>>& outputs) {
  std::vector<bool> needed(p.g.n_values());
  for (auto& [name, v] : outputs) needed[static_cast<size_t>(p.check(v))] = true;
  for (auto& guard : p.g.guards()) needed[static_cast<size_t>(guard.value)] = true;
  std::vector<ir::NodeId> order = p.g.order();
  for (auto n = order.rbegin(); n != order.rend(); ++n) {
    const ir::Node& x = p.g.node(*n);
    bool used = false;
    for (ValueId v : x.outputs) used |= needed[static_cast<size_t>(v)];
    if (!used) continue;
    for (ValueId v : x.outputs) needed[static_cast<size_t>(v)] = true;
    for (ValueId v : x.inputs) needed[static_cast<size_t>(v)] = true;
    for (auto& s : x.sizes) needed[static_cast<size_t>(s.value)] = true;
  }
  ir::Graph g(p.g.name());
  std::vector<ValueId> map(p.g.n_values(), kNone);
  auto take = [&](ValueId v) { return needed[static_cast<size_t>(v)]; };
  for (ValueId v : p.g.inputs())
    if (take(v)) map[static_cast<size_t>(v)] = g.add_input(p.g.value(v).name, p.g.meta(v));
  for (auto& x : p.g.vars()) {
    MGE_CHECK(!take(x.in), NotImplemented, "graph: '{}' is state that changes; a dumped graph holds constants.",
              p.g.value(x.in).name);
  }
  for (auto& c : p.g.constants())
    if (c.value != kNone && take(c.value))
      map[static_cast<size_t>(c.value)] =
          g.add_constant(p.g.meta(c.value), c.storage, c.offset, p.g.value(c.value).name);
  for (ir::NodeId n : order) {
    const ir::Node& x = p.g.node(n);
    if (x.outputs.empty() || !take(x.outputs[0])) continue;
    SmallVec<ValueId, 4> in;
    for (ValueId v : x.inputs) in.push_back(map[static_cast<size_t>(v)]);
    const ir::NodeId copy = g.add_node(*x.op, x.attrs, {in.data(), in.size()}, g.loc(p.g.location_of(n)));
    for (auto s : x.sizes) {
      s.value = map[static_cast<size_t>(s.value)];
      g.add_size(copy, s);
    }
    for (size_t k = 0; k < x.outputs.size(); ++k) {
      map[static_cast<size_t>(x.outputs[k])] = g.node(copy).outputs[k];
      g.set_name(g.node(copy).outputs[k], p.g.value(x.outputs[k]).name);
    }
  }
  for (auto guard : p.g.guards()) {
    guard.value = map[static_cast<size_t>(guard.value)];
    guard.loc = g.loc(p.g.location(guard.loc));
    g.add_guard(std::move(guard));
  }
  for (auto& [name, v] : outputs) g.add_output(name, map[static_cast<size_t>(v)]);
  return g;
}

nb::tuple write(PyGraph& p, const std::vector<std::pair<std::string, ValueId>>& outputs, nb::dict metadata,
                bool optimize, bool locations) {
  ir::Graph g = extract(p, outputs);
  pass::optimize(g, pipeline_options(optimize ? 2 : 1));  // level 1 drops what no output needs and keeps the ops
  serial::ModelInfo info;
  info.producer = "megengine " MGE_VERSION_STRING;
  for (auto [k, v] : metadata) info.metadata.emplace_back(nb::cast<std::string>(k), nb::cast<std::string>(v));
  std::vector<uint8_t> bytes = serial::write_model(g, info, {.locations = locations});
  nb::dict stats;
  nb::list inputs, params;
  size_t weights = 0;
  for (auto v : g.inputs()) inputs.append(g.value(v).name);
  for (auto& c : g.constants())
    if (c.value != kNone) {
      weights += g.meta(c.value).bytes();
      params.append(g.value(c.value).name);
    }
  stats["n_ops"] = g.n_nodes();
  stats["weight_bytes"] = weights;
  stats["inputs"] = inputs;
  stats["params"] = params;
  stats["content_hash"] = serial::xxh64(bytes);
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), stats);
}

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<PyGraph>(m, "Graph")
      .def("__init__", load, nb::arg("file") = nb::none())
      .def_prop_ro("metadata",
                   [](PyGraph& p) {
                     nb::dict d;
                     for (auto& [k, v] : p.metadata) d[k.c_str()] = v;
                     return d;
                   })
      .def_prop_ro("inputs", [](PyGraph& p) { return std::vector<ValueId>(p.g.inputs().begin(), p.g.inputs().end()); })
      .def_prop_ro("outputs",
                   [](PyGraph& p) {
                     nb::list out;
                     for (auto& o : p.g.outputs()) out.append(nb::make_tuple(o.name, o.value));
                     return out;
                   })
      .def_prop_ro("text", [](PyGraph& p) { return ir::print(p.g); })
      .def(
          "add_input",
          [](PyGraph& p, const std::string& name, nb::handle dtype, nb::handle shape, nb::handle device) {
            Meta meta;
            meta.dtype = to_dtype(dtype.ptr(), &meta.quant);
            const Ints sizes = to_ints(shape.ptr());
            meta.shape = Shape(sizes.data(), sizes.size());
            meta.cn = to_comp_node(device.ptr());
            return p.g.add_input(name, meta);
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::arg("device").none())
      .def("add_constant", add_constant)
      .def("apply", apply)
      .def("value", value)
      .def("node", node)
      .def("constant", constant)
      .def("set_name", [](PyGraph& p, ValueId v, const std::string& name) { p.g.set_name(p.check(v), name); })
      .def("replaced", replaced)
      .def("write", write);
}

}  // namespace mge::py
