// What a model file holds and what it needs, for `mge-lite info`: gathered once, told as text or as JSON.
//   ModelFacts facts = gather("net.mge", {});   facts.text(), facts.json()
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lite/network.h"
#include "plan/program.h"
#include "serial/model.h"

namespace lite {

struct ModelFacts {
  struct Section {
    std::string name;
    size_t bytes = 0;
  };
  struct Ops {
    size_t count = 0;
    std::set<std::string> dtypes;  // of results
  };
  struct Value {
    std::string name, dtype;
    std::vector<size_t> shape;
  };
  struct Case {
    std::string name;
    size_t inputs = 0, outputs = 0;
    double max_error = 0;
  };

  std::string file, format, producer, verified;
  std::string packing;  // of a packed model: name, and how its parts are encrypted
  size_t bytes = 0, weight_bytes = 0, weights = 0, models = 1;
  bool mapped = false;
  std::vector<Section> sections;  // of native files
  std::map<std::string, Ops> ops;
  size_t nodes = 0, with_line = 0, vars = 0;
  std::vector<Value> inputs, outputs;
  std::vector<Case> cases;
  std::vector<std::string> options;  // that it was dumped with
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string extra_info;  // of a packed model
  bool sizes_vary = false;
  size_t programs = 0;
  mge::PlanReport plan;  // at the sizes of the file

  std::string text() const;
  std::string json() const;
};

/// Loads the file as a network does; its errors come out.
ModelFacts gather(const std::string& path, const Config& config);

}  // namespace lite
