// Recording for Python; megengine.jit builds trace on it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "compat/names.h"
#include "ir/text.h"
#include "op/shape/shape_ops.h"
#include "plan/describe.h"
#include "recording.h"

namespace nb = nanobind;

namespace mge::py {

std::string describe_graph(ir::Graph g, const pass::PipelineOptions& o);

namespace {

using Tensors = SmallVec<Tensor*, 8>;

Tensors tensors(nb::sequence seq) {
  Tensors out;
  for (nb::handle h : seq) {
    MGE_CHECK(is_tensor(h.ptr()), Type, "trace: expected Tensors; got {}.", Py_TYPE(h.ptr())->tp_name);
    out.push_back(tensor_of(h.ptr()));
  }
  return out;
}

pass::Switch to_switch(std::optional<bool> x) {
  return !x ? pass::Switch::Unset : *x ? pass::Switch::On : pass::Switch::Off;
}

/// Of a GraphOptimizationConfig: (jit_fuse_dimshuffle, jit_fuse_reduce, rewrites).
using GraphOpt = std::tuple<std::optional<bool>, std::optional<bool>, std::vector<std::string>>;

// A call of partial_trace between its forward and its backward pass.
struct Half {
  RefPtr<Recording> of;
  RefPtr<Recording::Halfway> half;
};

nb::list optional_tensors(const std::vector<TensorPtr>& tensors) {
  nb::list out;
  for (auto& t : tensors) out.append(t ? nb::steal(wrap(t)) : nb::none());
  return out;
}

}  // namespace

PyRecording* recording_of(PyObject* o) {
  return nb::isinstance<PyRecording>(o) ? nb::inst_ptr<PyRecording>(nb::handle(o)) : nullptr;
}

namespace {

// ([(op, the original's name of it, attributes, ids of inputs, of outputs, module, place)], [(id, kind, name, meta)]).
nb::tuple listing(const ir::Graph& g) {
  nb::list ops, vars;
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const ir::Node& x = g.node(n);
    nb::dict attrs;
    if (x.attrs)
      for (auto& a : x.attrs->values()) attrs[a.name.c_str()] = nb::steal(attr_object(a.value));
    SmallVec<const Meta*, 4> metas;
    nb::list in, out;
    for (ir::ValueId v : x.inputs) {
      metas.push_back(&g.meta(v));
      in.append(v);
    }
    for (ir::ValueId v : x.outputs) out.append(v);
    const ir::Loc& loc = g.location_of(n);
    ops.append(nb::make_tuple(std::string(x.op->name),
                              compat::opr_types(*x.op, x.attrs.get(), {metas.data(), metas.size()}).back(), attrs, in,
                              out, loc.scope, loc.str()));
  }
  for (size_t v = 0; v < g.n_values(); ++v) {
    const ir::Value& x = g.value(static_cast<ir::ValueId>(v));
    if (x.erased || x.kind == ir::ValueKind::Token) continue;
    const char* kind = x.kind == ir::ValueKind::Const    ? "const"
                       : x.kind == ir::ValueKind::Result ? "internal"
                                                         : "external";
    nb::list shape;
    for (int64_t d : x.meta.shape) shape.append(d);
    vars.append(nb::make_tuple(v, kind, x.name, std::string(dtype_name(x.meta.dtype)), nb::tuple(shape),
                               x.meta.cn ? x.meta.cn->logical : "xpux:0"));
  }
  return nb::make_tuple(ops, vars);
}

}  // namespace

ir::Graph recording_graph(nb::handle recording, bool as_constants, std::vector<std::string> args,
                          std::vector<std::string> results) {
  auto& p = nb::cast<PyRecording&>(recording);
  return p.r->graph({as_constants, std::move(args), std::move(results)});
}

void bind_trace(nb::module_& m) {
  nb::class_<Half>(m, "Halfway").def("replay_backward", [](Half& h, nb::sequence late) {
    auto t = tensors(late);
    return optional_tensors(h.of->replay_backward(*h.half, {t.data(), t.size()}));
  });
  nb::class_<PyRecording>(m, "Recording")
      .def(
          "__init__",
          [](PyRecording* p, int opt_level, bool capture_as_const, bool replay, bool any_size, const GraphOpt& opt,
             bool symbolic, bool record_only, bool imperative, size_t late_args) {
            MGE_CHECK(opt_level >= 0 && opt_level <= 3, Value, "opt_level: expected 0 to 3; got {}.", opt_level);
            const auto& [dimshuffle, reduce, rewrites] = opt;
            new (p) PyRecording({opt_level,
                                 capture_as_const,
                                 replay,
                                 any_size,
                                 {to_switch(dimshuffle), to_switch(reduce), pass::parse_rewrites(rewrites)},
                                 symbolic || record_only,
                                 record_only,
                                 imperative,
                                 late_args});
          },
          nb::arg("opt_level") = 2, nb::arg("capture_as_const") = false, nb::arg("replay") = false,
          nb::arg("any_size") = false, nb::arg("graph_opt") = nb::make_tuple(nb::none(), nb::none(), nb::list()),
          nb::arg("symbolic") = false, nb::arg("record_only") = false, nb::arg("imperative") = false,
          nb::arg("late_args") = 0)
      .def("record_begin",
           [](PyRecording& p, nb::sequence a) {
             auto t = tensors(a);
             p.r->record_begin({t.data(), t.size()});
           })
      .def("record_end",
           [](PyRecording& p, nb::sequence a) {
             auto t = tensors(a);
             p.r->record_end({t.data(), t.size()});
           })
      .def("record_abort", [](PyRecording& p) { p.r->record_abort(); })
      .def("replay_forward",
           [](PyRecording& p, nb::sequence a) {
             auto t = tensors(a);
             auto half = p.r->replay_forward({t.data(), t.size()});
             return nb::make_tuple(nb::cast(Half{p.r, half}), optional_tensors(half->results));
           })
      .def("pin_arguments",
           [](PyRecording& p, nb::sequence outside) {
             auto t = tensors(outside);
             p.r->pin_arguments({t.data(), t.size()});
           })
      .def("assigned",
           [](PyRecording& p) {
             nb::list out;
             for (Tensor* t : p.r->assigned()) out.append(nb::steal(wrap(TensorPtr(t))));
             return out;
           })
      .def("captured",
           [](PyRecording& p) {
             nb::list out;
             for (Tensor* t : p.r->captured()) out.append(nb::steal(wrap(TensorPtr(t))));
             return out;
           })
      .def("is_inside", [](PyRecording& p, nb::handle t) { return p.r->is_inside(*tensor_of(t.ptr())); })
      .def_prop_ro("any_size", [](PyRecording& p) { return p.r->takes_any_size(); })
      .def_prop_ro("boundaries", [](PyRecording& p) { return p.r->boundaries(); })
      .def_prop_ro("host_only", [](PyRecording& p) { return p.r->host_only(); })
      .def_prop_ro("n_programs", [](PyRecording& p) { return p.r->n_programs(); })
      .def_prop_ro("n_ops", [](PyRecording& p) { return p.r->n_ops(); })
      .def("watch", [](PyRecording& p, bool on) { p.r->watch(on); })
      .def("profile", [](PyRecording& p) { return profile_json(p.r->latest()); })
      .def("static_memory", [](PyRecording& p) { return static_memory_json(p.r->latest()); })
      .def("described",
           [](PyRecording& p) {
             return describe_graph(p.r->graph({false, {}, {}}), pipeline_options(p.r->opt_level()));
           })
      .def("report", [](PyRecording& p) { return p.r->report(); })
      .def("captured_cells",
           [](PyRecording& p) {
             nb::list out;
             for (Tensor* t : p.r->captured()) out.append(reinterpret_cast<uintptr_t>(t));
             return out;
           })
      .def("set_name",
           [](PyRecording& p, nb::handle t, const std::string& name) { p.r->set_name(tensor_of(t.ptr()), name); })
      .def("listing",
           [](PyRecording& p) {
             return listing(p.r->graph({false, {}, {}}));
           })
      .def(
          "text",
          [](PyRecording& p, bool as_constants) {
            ir::Graph g = p.r->graph({as_constants, {}, {}});
            return ir::print(g);
          },
          nb::arg("as_constants") = false);
  m.def(
      "cell_of", [](nb::handle t) { return reinterpret_cast<uintptr_t>(tensor_of(t.ptr())); },
      "The cell of a tensor as a number, which no other living one has (Recording.captured_cells).");
  m.def("set_module_scopes", [](nb::list names) { set_module_scopes(names.ptr()); });
  m.def("is_tracing", [] { return active_tracer() != nullptr; });
  // The integers in a tensor; while a call is recorded in which they may be others, as tensors.
  m.def("sizes_in", [](nb::handle x) {
    nb::list sizes;
    Tensor& t = *tensor_of(x.ptr());
    bool later = false;
    Ints numbers = size_numbers(t, &later);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!later || !g_size_type) {
        sizes.append(numbers[i]);
        continue;
      }
      TensorPtr one(&t);
      if (t.meta().shape.rank > 0) {
        const auto at = static_cast<int64_t>(i);
        one = apply1(OpRegistry::global().get("slice"), make_attrs(SliceAttrs{{0}, {at}, {at + 1}, {1}}), {&t});
        one = apply1(OpRegistry::global().get("squeeze"), make_attrs(AxesAttrs{{0}}), {one.get()});
      }
      sizes.append(nb::steal(wrap(std::move(one), g_size_type)));
    }
    return sizes;
  });
  m.def("as_size", [](nb::handle x) { return nb::steal(wrap(TensorPtr(tensor_of(x.ptr())), g_size_type)); });
  m.def("set_size_type", [](nb::handle t) { g_size_type = reinterpret_cast<PyTypeObject*>(t.inc_ref().ptr()); });
  // A part of the call that is not seen and may differ from call to call.
  m.def("exclude_begin", [] {
    Tracer* t = active_tracer();
    if (t) t->exclude_begin();
    set_active_tracer(nullptr);
    return reinterpret_cast<uintptr_t>(t);
  });
  m.def(
      "needs_host",
      [](const std::string& why) {
        if (Tracer* t = active_tracer()) t->needs_host(why);
      },
      "A recording of this call cannot be replayed without Python, for this reason.");
  m.def("exclude_end", [](uintptr_t token) {
    auto* t = reinterpret_cast<Tracer*>(token);
    if (t) t->exclude_end();
    set_active_tracer(t);
  });
  // Tensors made while the returned token is held are state from outside, not constants of the call.
  m.def("pause_trace", [] {
    Tracer* t = active_tracer();
    set_active_tracer(nullptr);
    return reinterpret_cast<uintptr_t>(t);
  });
  m.def("resume_trace", [](uintptr_t t) { set_active_tracer(reinterpret_cast<Tracer*>(t)); });
}

}  // namespace mge::py
