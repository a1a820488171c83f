// Graphs as JSON for tools that draw them (plan/describe.h): as they were written, as they run, and which op of the one
// became which of the other.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/json_text.h"
#include "common.h"
#include "eager/trace.h"
#include "ir/bind.h"
#include "original.h"
#include "pass/pipeline.h"
#include "plan/describe.h"
#include "plan/evaluate.h"
#include "serial/model.h"

namespace nb = nanobind;

namespace mge::py {
namespace {

// Passes keep locations, and give what they make that of what it came from. So with the number of each node in the
// place of its line, every node that is left says where it comes from.
std::string origins(ir::Graph g, const pass::PipelineOptions& o) {
  for (auto n : g.order()) g.set_loc(n, g.loc("node", n + 1));
  pass::optimize(g, o);
  JsonText j;
  j.open('{');
  for (auto n : g.order())
    if (const ir::Loc& l = g.location_of(n); l.file == "node") j.key(std::to_string(n)).number(l.line - 1);
  return j.close().str();
}

}  // namespace

std::string describe_graph(ir::Graph g, const pass::PipelineOptions& o) {
  std::vector<Meta> metas;
  for (auto v : g.inputs()) metas.push_back(g.meta(v));
  JsonText j;
  j.open('{');
  if (g.is_sized()) {
    try {
      ir::bind(g, metas, {}, kernel_evaluator());
    } catch (const Error& e) {  // sizes that depend on values: there is no one program
      return j.key("written").raw(graph_json(g)).key("program").null().key("why").text(e.text()).close().str();
    }
  }
  j.key("written").raw(graph_json(g)).key("origin").raw(origins(g.clone(), o));
  pass::optimize(g, o);
  const RefPtr<Program> p = Program::compile(g);
  return j.key("program").raw(profile_json({&p, 1})).close().str();
}

void bind_describe(nb::module_& m) {
  m.def(
      "describe_model",
      [](nb::bytes file, const std::map<std::string, std::vector<int64_t>>& shapes, int opt_level) {
        serial::LoadedModel model = serial::read_model({reinterpret_cast<const uint8_t*>(file.c_str()), file.size()},
                                                       "graph_view", read_options());
        ir::Graph& g = model.graph;
        std::vector<Meta> metas;
        for (auto v : g.inputs()) metas.push_back(g.meta(v));
        for (auto& [name, sizes] : shapes) {
          const int i = g.find_input(name);
          MGE_CHECK(i >= 0, Value, "graph_view: the file has no input '{}'.", name);
          metas[static_cast<size_t>(i)].shape = Shape(sizes.data(), sizes.size());
        }
        if (!shapes.empty() || g.is_sized()) {
          ir::Graph bound = g.clone();
          try {
            ir::bind(bound, metas, {}, kernel_evaluator());
            g = std::move(bound);
          } catch (const Error&) {
            if (!shapes.empty()) throw;
          }
        }
        return describe_graph(std::move(g), pipeline_options(opt_level));
      },
      nb::arg("file"), nb::arg("shapes") = std::map<std::string, std::vector<int64_t>>(), nb::arg("opt_level") = 2,
      "A model file as JSON: {written, program, origin}.");
}

}  // namespace mge::py
