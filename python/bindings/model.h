// A graph on its way into a model file: optimised, named; test cases are added to it before it is written.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "serial/model.h"

namespace mge::py {

struct ModelDump {
  ir::Graph g;
  serial::ModelInfo info;
};

struct DumpOptions {
  bool change = true;               // otherwise the ops are written as they are
  std::optional<uint64_t> options;  // a word of pass::InferenceOptions; none: not optimised for inference
  std::vector<std::string> rewrites;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// An output whose name is empty is called what its op is called.
ModelDump make_model_dump(ir::Graph g, const std::vector<std::string>& output_names, const DumpOptions& opt);

}  // namespace mge::py
