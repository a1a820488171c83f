// Writing a recording as a model file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common.h"
#include "eager/trace.h"
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
    info.producer = "megengine";
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
}

}  // namespace mge::py
