// A loaded model ready to run: compiled once per set of input shapes, holding its vars. Knows nothing of the Lite API.
//   Engine e(model, {});
//   e.prepare(input_metas);                 compiles, or finds the program of these shapes
//   std::vector<Buffer> y = e.run(inputs);
// Where sizes depend on values the model runs in parts (plan/sizes.h), and outputs have their shapes after the run.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernel/tune.h"
#include "pass/pipeline.h"
#include "plan/sizes.h"
#include "serial/model.h"

namespace lite {

/// With the reader of MegEngine's own files, unless the build leaves it out (MGE_ORIGINAL_FILES).
mge::serial::ReadOptions read_options();

struct EngineOptions {
  int opt_level = 2;
  std::vector<std::string> outputs;       // compute only these; empty: all
  const mge::CompNode* device = nullptr;  // where it runs; null: on the host
  mge::pass::InferenceOptions inference;  // applied to the graph of the file
  int record_level = 0;                   // CompileOptions::record; 2: the graph goes with the first run
  bool every_value = false;               // every result of the graph is an output, after the real ones; for dumps
  int jit_level = 0;                      // 1: fuse elementwise ops only; 2: reductions, too; 0: as opt_level says
  bool const_shape = false;               // the first sizes are the only ones: the graph goes once they are compiled
  bool dynamic_alloc = false;  // op by op, each result allocated when it is made and freed after its last use
  bool verify = false;         // prove of every program that no result is overwritten too early

  // How kernels are chosen (kernel/tune.h).
  uint32_t strategy = mge::kHeuristic;
  size_t workspace = SIZE_MAX;
  int64_t shared_batch = 0;  // measured with this batch, and what wins is taken for all
  bool tune_once = false;    // only for the first sizes; later ones use what is known
};

class Engine {
 public:
  Engine(std::shared_ptr<const mge::serial::LoadedModel> model, const EngineOptions& opt);

  /// As in the file, less the outputs not asked for.
  const mge::Graph& graph() const { return graph_; }
  const std::shared_ptr<const mge::serial::LoadedModel>& model() const { return model_; }

  /// Errors name the op and the user's line.
  void prepare(const std::vector<mge::Meta>& inputs);
  /// From the next prepare on kernels are chosen so; what was compiled is compiled again.
  void set_strategy(uint32_t strategy, int64_t shared_batch);
  void set_workspace(size_t bytes);
  /// All that were compiled and kept.
  std::vector<mge::RefPtr<mge::Program>> programs() const;
  size_t n_programs() const { return programs().size(); }
  /// Record level 2, after the first run: sizes cannot change, the model cannot be shared.
  bool dropped() const { return dropped_; }
  /// Those of the sizes that were used last, in the order they run.
  std::vector<mge::RefPtr<mge::Program>> latest() const;
  /// The time of every instruction is taken from now on (plan/describe.h).
  void watch(bool on);
  /// Sizes of outputs may differ from run to run with the same inputs' shapes.
  bool sizes_vary() const { return parts_.size() > 1 || reads_inputs_; }
  /// Shapes of outputs as far as they are known: of all after prepare, or, when sizes depend on values, after run.
  bool knows_outputs() const { return !outputs_.empty(); }
  const mge::Meta& output_meta(size_t i) const { return outputs_[i]; }
  /// The first sizes outputs have: those of the recorded call, until they are known.
  const mge::Meta& recorded_output_meta(size_t i) const { return graph_.meta(graph_.outputs()[i].value); }

  /// Inputs as prepared. Results are contiguous. Vars go on from where the last run left them.
  std::vector<mge::Buffer> run(std::vector<mge::Buffer> inputs);

 private:
  mge::pass::PipelineOptions passes(int level) const;
  void drop_graph();
  mge::RefPtr<mge::Program> compile(mge::Graph bound);
  void forget_programs();
  void measure_shared_batch(const std::vector<mge::Meta>& inputs);
  std::vector<mge::Buffer> run_parts(std::vector<mge::Buffer> inputs);

  std::shared_ptr<const mge::serial::LoadedModel> model_;
  EngineOptions opt_;
  mge::Graph graph_;
  mge::Stages stages_;  // without their graphs, which `parts_` hold
  std::vector<mge::SizedGraph> parts_;
  std::vector<mge::Buffer> vars_;
  std::vector<mge::Meta> inputs_, outputs_;
  bool watched_ = false;
  bool tuned_ = false;                 // kernels of the first sizes were measured
  bool dropped_ = false;               // the graph, after the first run of record level 2
  bool reads_inputs_ = false;          // sizes depend on the values of inputs
  mge::RefPtr<mge::Program> current_;  // null: sizes depend on values, so programs are found by run
};

}  // namespace lite
