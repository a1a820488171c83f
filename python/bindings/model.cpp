// Writing a recording as a model file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "eager/trace.h"
#include "megengine/version.h"
#include "original.h"
#include "serial/model.h"
#include "serial/xxh64.h"

namespace nb = nanobind;

namespace mge::py {

ir::Graph recording_graph(nb::handle recording, bool as_constants, std::vector<std::string> args,
                          std::vector<std::string> results);

void bind_model(nb::module_& m) {
  m.def("dump_model", [](nb::handle recording, std::vector<std::string> args, std::vector<std::string> results,
                         bool optimize, nb::dict metadata) {
    ir::Graph g = recording_graph(recording, true, std::move(args), std::move(results));
    // Level 1 keeps the ops as recorded (Lite fuses for itself) and only drops what no output needs.
    if (optimize) pass::optimize(g, pipeline_options(1));
    serial::ModelInfo info;
    info.producer = "megengine " MGE_VERSION_STRING;
    for (auto [k, v] : metadata) info.metadata.emplace_back(nb::cast<std::string>(k), nb::cast<std::string>(v));
    std::vector<uint8_t> bytes = serial::write_model(g, info);
    nb::dict stats;
    stats["n_ops"] = g.n_nodes();
    size_t weights = 0;
    nb::list params;
    for (auto& c : g.constants())
      if (c.value != ir::kNone) {
        weights += g.meta(c.value).bytes();
        params.append(g.value(c.value).name);
      }
    stats["weight_bytes"] = weights;
    stats["params"] = params;
    stats["content_hash"] = serial::xxh64(bytes);
    return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), stats);
  });
  m.def("model_io", [](nb::bytes file) {
    serial::LoadedModel model =
        serial::read_model({reinterpret_cast<const uint8_t*>(file.c_str()), file.size()}, "model", read_options());
    auto entry = [](const std::string& name, const Meta& meta) {
      return nb::make_tuple(name, std::string(dtype_name(meta.dtype)), nb::steal(shape_tuple(meta.shape)));
    };
    nb::list inputs, outputs;
    const ir::Graph& g = model.graph;
    for (auto v : g.inputs()) inputs.append(entry(g.value(v).name, g.meta(v)));
    for (auto& o : g.outputs()) outputs.append(entry(o.name, g.meta(o.value)));
    return nb::make_tuple(inputs, outputs);
  });
}

}  // namespace mge::py
