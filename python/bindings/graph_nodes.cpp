// Tensors that are variables of an edited graph: ops on them become ops of that graph. Nobody computes their values, so
// the value of such a tensor has failed from the start, with an error that is the variable (NodeError).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "graph.h"
#include "op/rng/rng.h"
#include "op/shape/shape_ops.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

struct NodeError final : ExecError {
  NodeError(const GraphPtr& g, ValueId v, std::string text) : ExecError(ErrorKind::Trace, std::move(text)), node{g, v} {
    seen = true;
  }
  NodeRef node;
};

constexpr uint32_t kNodeEpoch = UINT32_MAX;  // of no recording: the error of the value is a NodeError
constexpr const char* kNoValue =
    "numpy: {} of a graph has no value that is known before the graph runs. Dump the graph and run it with "
    "GraphInference.";

PyTypeObject* g_node_type = nullptr;  // network_node.VarNode
PyObject* g_made = nullptr;           // called with each new object of it; gives the object to use
PyObject* g_joined = nullptr;         // called with (keys of both graphs, new graph, ids there)

class Nodes final : public NodeDispatch {
 public:
  void apply(const OpDef& op, const Attrs& attrs, std::span<Tensor* const> in, std::span<TensorPtr> out) override {
    MGE_CHECK(!op.is(kEffect), NotImplemented,
              "{}: acts on what is outside of the graph, which cannot be added to one. Feed what it gives as an input.",
              op.name);
    const GraphPtr graph = common_graph(attrs, in);
    EditedGraph& g = *graph;
    SmallVec<ValueId, 4> ids;
    for (Tensor* t : in) ids.push_back(value_in(g, *t));
    const bool sized = attrs && !attrs->sizes().empty();
    const NodeId n =
        g.g.add_node(op, sized ? op.schema.build(op.name, attrs->values()) : attrs, {ids.data(), ids.size()}, g.here());
    if (sized)
      for (auto& s : attrs->sizes())
        g.g.add_size(n, {s.field, s.element, value_in(g, *static_cast<Tensor*>(s.value.get()))});
    for (size_t i = 0; i < out.size(); ++i) out[i] = node_tensor(graph, g.g.node(n).outputs[i]);
    if (op.is(kRandom)) leave_generator(op, in, out);
  }

  TensorPtr sizes_of(Tensor& t) override {
    static const OpDef& shape_of = OpRegistry::global().get("shape_of");
    return apply1(shape_of, nullptr, {&t});
  }

  Buffer read(Tensor& t) override {
    const NodeRef r = node_of(t).now();
    if (!r.graph) return host_buffer(*t.value);
    const ir::ConstTensor* c = r.graph->known(r.id);
    MGE_CHECK(c, Value, kNoValue, r.graph->describe(r.id));
    Meta m = t.meta();
    m.cn = CompNode::default_node();
    Buffer b = allocate_for_host(m);
    std::memcpy(b.storage->ptr, static_cast<const char*>(c->storage->ptr) + c->offset, m.bytes());
    return b;
  }

 private:
  // The graph draws from where the generator of the process stands; that one goes on with numbers which the graph, in
  // however many runs, does not come to.
  static void leave_generator(const OpDef& op, std::span<Tensor* const> in, std::span<TensorPtr> out) {
    static const OpDef& skip = OpRegistry::global().get("rng_skip");
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (op.outputs[i] == "new_state" && !(in.back()->modes & mode::kNode))
        out[i] = apply1(skip, make_attrs(SkipAttrs{int64_t{1} << 48}), {in.back()});
  }

  // The graph of the variables; those of several graphs are one from now on.
  static GraphPtr common_graph(const Attrs& attrs, std::span<Tensor* const> in) {
    GraphPtr graph;
    auto add = [&](const Tensor& t) {
      if (!(t.modes & mode::kNode)) return;
      const NodeRef r = node_of(t).now();
      if (!graph) graph = r.graph;
      if (r.graph != graph) join(graph, r.graph);
    };
    for (Tensor* t : in) add(*t);
    if (attrs)
      for (auto& s : attrs->sizes()) add(*static_cast<Tensor*>(s.value.get()));
    return graph;
  }

  static ValueId value_in(EditedGraph& g, Tensor& t) {
    if (t.modes & mode::kNode) return node_of(t).now().id;
    const Buffer dense = make_contiguous(t.meta(), read_buffer(t));
    return g.g.add_constant_copy(t.meta(), dense.data(t.meta().dtype));
  }
};

}  // namespace

NodeRef NodeRef::now() const {
  NodeRef r = *this;
  while (r.graph && r.graph->into) {
    r.id = r.graph->map[static_cast<size_t>(r.id)];
    r.graph = r.graph->into;
  }
  return r;
}

NodeRef node_of(const Tensor& t) {
  if (t.value->trace_epoch != kNodeEpoch) return {};
  return static_cast<const NodeError*>(t.value->error.get())->node;
}

TensorPtr node_tensor(const GraphPtr& g, ValueId v) {
  ValuePtr value = make_ref<Value>();
  value->meta = g->g.meta(v);
  if (!value->meta.cn) value->meta.cn = CompNode::default_node();
  value->error = std::make_shared<NodeError>(g, v, format(kNoValue, g->describe(v)));
  value->trace_epoch = kNodeEpoch;
  value->state.store(State::Failed, std::memory_order_release);
  TensorPtr t = make_ref<Tensor>(std::move(value));
  t->modes = mode::kNode;
  return t;
}

PyObject* wrap_node(TensorPtr t) {
  if (!g_node_type) {  // nobody has imported utils.network_node: a plain tensor that node_of knows
    PyObject* plain = g_tensor_type->tp_alloc(g_tensor_type, 0);
    if (!plain) throw PythonError{};
    new (&reinterpret_cast<PyTensor*>(plain)->t) TensorPtr(std::move(t));
    return plain;
  }
  Obj o = check(g_node_type->tp_alloc(g_node_type, 0));
  new (&reinterpret_cast<PyTensor*>(o.get())->t) TensorPtr(std::move(t));
  return check(PyObject_CallOneArg(g_made, o.get())).release();
}

void join(const GraphPtr& a, const GraphPtr& b) {
  if (a == b) return;
  ir::Graph& g = a->g;
  const ir::Graph& from = b->g;
  std::vector<ValueId> map(from.n_values(), ir::kNone);
  auto at = [&](ValueId v) -> ValueId& { return map[static_cast<size_t>(v)]; };
  for (ValueId v : from.inputs()) at(v) = a->add_input(b->name(v), from.meta(v));
  for (auto& v : from.vars())
    MGE_CHECK(from.use_count(v.in) == 0, NotImplemented,
              "graph: '{}' is state that changes; such a graph cannot be joined to another.", from.value(v.in).name);
  for (auto& c : from.constants())
    if (c.value != ir::kNone) at(c.value) = g.add_constant(from.meta(c.value), c.storage, c.offset, b->name(c.value));
  for (NodeId n : from.order()) {
    const ir::Node& x = from.node(n);
    SmallVec<ValueId, 4> in;
    for (ValueId v : x.inputs) in.push_back(at(v));
    const NodeId copy = g.add_node(*x.op, x.attrs, {in.data(), in.size()}, g.loc(from.location_of(n)));
    for (auto s : x.sizes) g.add_size(copy, {s.field, s.element, at(s.value)});
    for (size_t k = 0; k < x.outputs.size(); ++k) {
      at(x.outputs[k]) = g.node(copy).outputs[k];
      g.set_name(g.node(copy).outputs[k], b->name(x.outputs[k]));
    }
  }
  for (auto guard : from.guards()) {
    guard.value = at(guard.value);
    guard.loc = g.loc(from.location(guard.loc));
    g.add_guard(std::move(guard));
  }
  b->map = std::move(map);
  b->into = a;
  if (!g_joined) return;
  nb::list ids;
  for (ValueId v : b->map) ids.append(v);
  nb::handle tell = g_joined;
  tell(reinterpret_cast<uintptr_t>(a.get()), reinterpret_cast<uintptr_t>(b.get()), PyGraph{a}, ids);
}

void bind_graph_nodes(nb::module_& m) {
  static Nodes nodes;
  set_node_dispatch(&nodes);
  m.def(
      "set_node_type",
      [](nb::handle type, nb::handle made, nb::handle joined) {
        g_node_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
        g_made = made.inc_ref().ptr();
        g_joined = joined.inc_ref().ptr();
      },
      "The class of tensors that are variables of a graph, what is called with each new one, and with joined graphs.");
  m.def(
      "node_of",
      [](nb::handle t) -> nb::object {
        if (!is_tensor(t.ptr())) return nb::none();
        const NodeRef r = node_of(*tensor_of(t.ptr())).now();
        if (!r.graph) return nb::none();
        return nb::make_tuple(PyGraph{r.graph}, reinterpret_cast<uintptr_t>(r.graph.get()), r.id);
      },
      "(graph, its key, id) of a tensor that is a variable of a graph; None for others.");
  m.def(
      "set_node",
      [](nb::handle t, const PyGraph& g, ValueId v) {
        MGE_CHECK(is_tensor(t.ptr()), Type, "set_node: a Tensor is needed; got {}.", Py_TYPE(t.ptr())->tp_name);
        TensorPtr node = node_tensor(g.graph, g.get().check(v));
        tensor_of(t.ptr())->value = node->value;
        tensor_of(t.ptr())->modes = node->modes;
      },
      "From now on the tensor is this variable.");
}

}  // namespace mge::py
