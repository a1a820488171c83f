// Compiled programs as plain Python data, for tools that draw or list them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "eager/trace.h"
#include "plan.h"
#include "plan/evaluate.h"
#include "serial/model.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

nb::list operands(const std::vector<ProgramInfo::Operand>& of) {
  nb::list out;
  for (auto& o : of) {
    nb::list one;
    one.append(o.buffer);
    one.append(std::string(dtype_name(o.meta.dtype)));
    one.append(nb::steal(shape_tuple(o.meta.shape)));
    out.append(one);
  }
  return out;
}

nb::dict buffer_dict(const ProgramInfo::Buffer& b, size_t id) {
  nb::dict d;
  d["id"] = id;
  d["kind"] = b.kind;
  d["device"] = b.device;
  d["address"] = b.address;
  d["bytes"] = b.bytes;
  d["first"] = b.first;
  d["last"] = b.last;
  d["donor"] = b.donor;
  nb::list values;
  for (auto& v : b.values) {
    nb::dict x;
    x["value"] = v.value;
    x["name"] = v.name;
    x["node"] = v.node;
    x["dtype"] = std::string(dtype_name(v.meta.dtype));
    x["shape"] = nb::steal(shape_tuple(v.meta.shape));
    x["order"] = v.order;
    values.append(x);
  }
  d["values"] = values;
  return d;
}

nb::dict instruction_dict(const ProgramInfo::Instr& c) {
  nb::dict d;
  d["op"] = c.op;
  d["kernel"] = c.kernel;
  d["node"] = c.node;
  d["location"] = c.location;
  d["device"] = c.device;
  d["ns"] = c.ns;
  d["flops"] = c.flops;
  d["inputs"] = operands(c.inputs);
  d["outputs"] = operands(c.outputs);
  d["workspace"] = c.workspace;
  nb::list orders;  // of the results
  for (auto& o : c.outputs) orders.append(o.order);
  d["orders"] = orders;
  return d;
}

nb::dict report_dict(const PlanReport& r) {
  nb::dict d;
  d["arena_bytes"] = r.arena_bytes;
  d["lower_bound"] = r.lower_bound;
  d["sum_bytes"] = r.sum_bytes;
  d["output_bytes"] = r.output_bytes;
  d["const_bytes"] = r.const_bytes;
  d["converted_bytes"] = r.converted_bytes;
  d["prepared_bytes"] = r.prepared_bytes;
  d["copy_bytes"] = r.copy_bytes;
  d["workspace_bytes"] = r.workspace_bytes;
  d["reordered_bytes"] = r.reordered_bytes;
  d["recomputable_bytes"] = r.recomputable_bytes;
  d["instrs"] = r.instrs;
  d["views"] = r.views;
  d["in_place"] = r.in_place;
  d["copies"] = r.copies;
  d["converted"] = r.converted;
  d["channels_last"] = r.channels_last;
  d["joined"] = r.joined;
  d["reordered"] = r.reordered;
  d["donated_vars"] = r.donated_vars;
  d["strategy"] = std::string(r.strategy);
  return d;
}

// The program that would run a model file with inputs of these sizes; those of the file where none are given.
nb::dict plan_model(nb::bytes file, nb::dict shapes, int opt_level) {
  serial::LoadedModel model =
      serial::read_model({reinterpret_cast<const uint8_t*>(file.c_str()), file.size()}, "plan_model");
  Stages stages = split(model.graph);
  MGE_CHECK(stages.parts.size() == 1, NotImplemented,
            "plan_model: sizes in this model depend on values that it computes, so there is no plan before it runs.");
  ir::Graph& g = stages.parts[0].graph;
  std::vector<Meta> metas;
  for (ir::ValueId v : g.inputs()) {
    metas.push_back(g.meta(v));
    const nb::str name(g.value(v).name.c_str());
    if (!shapes.contains(name)) continue;
    const Ints sizes = to_ints(nb::object(shapes[name]).ptr());
    metas.back().shape = Shape(sizes.data(), sizes.size());
  }
  ir::bind(g, metas, {}, kernel_evaluator());
  pass::optimize(g, pipeline_options(opt_level));
  return nb::cast<nb::dict>(program_dicts({Program::compile(g)})[0]);
}

}  // namespace

nb::list program_dicts(const std::vector<RefPtr<Program>>& programs) {
  nb::list out;
  for (auto& p : programs) {
    const ProgramInfo info = p->info();
    nb::dict d;
    d["name"] = p->graph().name();
    d["report"] = report_dict(p->report());
    nb::list buffers, code;
    for (size_t i = 0; i < info.buffers.size(); ++i) buffers.append(buffer_dict(info.buffers[i], i));
    for (auto& c : info.instructions) code.append(instruction_dict(c));
    d["buffers"] = buffers;
    d["instructions"] = code;
    out.append(d);
  }
  return out;
}

void bind_plan(nb::module_& m) {
  m.def("plan_model", plan_model, nb::arg("file"), nb::arg("shapes") = nb::dict(), nb::arg("opt_level") = 2);
}

}  // namespace mge::py
