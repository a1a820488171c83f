// A graph that a program makes or edits, shared by Python's handles of it and by the tensors that are its variables.
// It only grows: an edited op is there once more with its other inputs, and what a file is written of is taken out.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.h"
#include "eager/trace.h"
#include "ir/evaluator.h"
#include "ir/graph.h"

namespace mge::py {

using ir::NodeId;
using ir::ValueId;

struct EditedGraph {
  ir::Graph g{"main"};
  std::vector<std::pair<std::string, std::string>> metadata;
  // Inputs of an ir::Graph have different names; those of variables may be equal until a file is written.
  std::unordered_map<ValueId, std::string> names;
  std::unordered_map<ValueId, ir::ConstTensor> folds;
  // Set once all of it has been put into another graph, in which value v is map[v].
  std::shared_ptr<EditedGraph> into;
  std::vector<ValueId> map;

  ValueId check(ValueId v) const;
  NodeId check_node(NodeId n) const;
  const std::string& name(ValueId v) const;
  std::string describe(ValueId v) const;  // "variable 'x'" or "variable 12"
  ir::LocId here();
  ValueId add_input(const std::string& name, const Meta& m);
  /// A handful of numbers that follows from constants and sizes; null: only a run knows them.
  const ir::ConstTensor* known(ValueId v);
};
using GraphPtr = std::shared_ptr<EditedGraph>;

/// A variable; `now` follows graphs that were joined to others.
struct NodeRef {
  GraphPtr graph;
  ValueId id = ir::kNone;
  NodeRef now() const;
};

/// Puts all of `b` into `a`, and tells Python.
void join(const GraphPtr& a, const GraphPtr& b);

/// What Python holds.
struct PyGraph {
  GraphPtr graph;
  EditedGraph& get() const {
    MGE_CHECK(!graph->into, Value, "graph: it was joined to another one; use the variables, which know theirs.");
    return *graph;
  }
};

/// The variable that a tensor is; graph is null for other tensors.
NodeRef node_of(const Tensor& t);
TensorPtr node_tensor(const GraphPtr& g, ValueId v);

}  // namespace mge::py
