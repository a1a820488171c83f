// Programs of a graph that takes any sizes. A program is compiled for fixed ones (plan/program.h); here they are found,
// or made, for the sizes of a call.
//   Stages parts = split(graph);           where a size depends on values, what computes those is a part of its own
//   SizedGraph part(std::move(parts.stages[0]), compile);
//   RefPtr<Program> p = part.program(metas, known);      binds (ir/bind.h), compiles, or finds what it made before
#pragma once
#include <functional>
#include <list>
#include <vector>

#include "ir/bind.h"
#include "plan/program.h"

namespace mge {

/// One part of a graph. Inputs and outputs are slots: those of the graph, its vars, and values that cross between
/// parts.
struct Stage {
  ir::Graph graph;
  std::vector<int> in, out;
  std::vector<bool> host;  // per input: sizes depend on its value, so it is read before the part is bound
};

struct Stages {
  std::vector<Stage> parts;  // one, and the graph as it was, when no size depends on what the graph computes
  size_t n_slots = 0;        // inputs first, then vars, then what crosses
  std::vector<int> outputs;  // slot of each output of the graph
  std::vector<int> commits;  // slot of what each var is to hold; -1: it keeps its value
  size_t late_from = 0;      // the parts from here on need late inputs; of a split without any, all others do not
};

/// `late`: so many of the last inputs arrive when the rest has been computed already (the gradients of results, where a
/// backward pass is part of the graph). What needs them, and whatever belongs to a backward pass, makes parts of its
/// own, behind the others.
Stages split(const ir::Graph& g, size_t late = 0);

/// The programs of one part, by the sizes they were made for. The one used longest ago goes: programs own memory.
class SizedGraph {
 public:
  using Compile = std::function<RefPtr<Program>(ir::Graph)>;
  SizedGraph(ir::Graph g, Compile compile) : graph_(std::move(g)), compile_(std::move(compile)) {}

  const ir::Graph& graph() const { return graph_; }
  /// Throws as bind does, the same each time it is asked for sizes that do not fit.
  RefPtr<Program> program(std::span<const Meta> inputs, std::span<const ir::KnownInput> known = {});
  /// Whether program() would give one; binds, but does not compile.
  bool accepts(std::span<const Meta> inputs, std::span<const ir::KnownInput> known = {});
  size_t n_programs() const { return made_.size(); }
  /// From now on there are the programs that were made, and no others.
  void drop_graph();
  std::vector<RefPtr<Program>> programs() const;

  /// Programs kept at once.
  static constexpr size_t kMaxPrograms = 16;

 private:
  struct Made {
    std::vector<Meta> inputs;
    std::string known;
    RefPtr<Program> program;           // null: not compiled yet, or refused
    std::shared_ptr<ir::Graph> bound;  // until it is compiled
    std::shared_ptr<Error> refused;
  };
  Made& find(std::span<const Meta> inputs, std::span<const ir::KnownInput> known);

  ir::Graph graph_;
  Compile compile_;
  std::list<Made> made_;  // most recently used first
};

}  // namespace mge
