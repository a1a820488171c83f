// A loaded model ready to run: compiled once per set of input shapes, holding its vars. Knows nothing of the Lite API.
//   Engine e(model, {});
//   e.prepare(input_metas);                 compiles, or finds the program of these shapes
//   std::vector<Buffer> y = e.run(inputs);
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "plan/program.h"
#include "serial/model.h"

namespace lite {

struct EngineOptions {
  int opt_level = 2;
  std::vector<std::string> outputs;  // compute only these; empty: all
  bool every_value = false;          // every result of the graph is an output, after the real ones; for dumps
};

class Engine {
 public:
  Engine(std::shared_ptr<const mge::serial::LoadedModel> model, const EngineOptions& opt);

  /// As in the file, less the outputs not asked for.
  const mge::Graph& graph() const { return graph_; }
  const std::shared_ptr<const mge::serial::LoadedModel>& model() const { return model_; }

  /// Errors name the op and the user's line. Afterwards program() is the one for these inputs.
  void prepare(const std::vector<mge::Meta>& inputs);
  const mge::Program& program() const { return *current_->program; }
  size_t n_programs() const { return programs_.size(); }

  /// Inputs as prepared. Results are contiguous. Vars go on from where the last run left them.
  std::vector<mge::Buffer> run(std::vector<mge::Buffer> inputs);

 private:
  struct Compiled {
    std::vector<mge::Meta> inputs;
    mge::RefPtr<mge::Program> program;
  };
  mge::RefPtr<mge::Program> compile(const std::vector<mge::Meta>& inputs) const;

  std::shared_ptr<const mge::serial::LoadedModel> model_;
  EngineOptions opt_;
  mge::Graph graph_;
  std::vector<mge::Buffer> vars_;
  std::list<Compiled> programs_;  // most recently used first
  Compiled* current_ = nullptr;
};

}  // namespace lite
