// Lets rules written against Emitter (vjp, decompose) emit into a graph. Promotes inputs as eager dispatch does.
//   GraphBuilder b(&g, {.loc = node.loc, .before = n});
//   Val y = b.val(x) * b.val(scale);   ValueId id = b.id(y);
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/evaluator.h"
#include "ir/graph.h"
#include "op/emitter.h"

namespace mge::ir {

struct InsertAt {
  LocId loc = kNoLoc;     // of every node emitted
  NodeId before = kNone;  // kNone appends
};

class GraphBuilder final : public Emitter {
 public:
  /// With an evaluator, `known` also computes handfuls of numbers that follow from constants.
  explicit GraphBuilder(Graph* g, InsertAt at = {}, Evaluator evaluate = {})
      : g_(g), at_(at), evaluate_(std::move(evaluate)) {}

  Val val(ValueId v);
  static ValueId id(const Val& v);
  void set_at(InsertAt at) { at_ = at; }
  /// The graph is to hold for inputs of any sizes: shapes are handed on as values, and where a rule uses one as a
  /// number, a guard says which. Needs the evaluator. Before anything is emitted.
  void let_sizes_vary();

  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) override;
  const Meta& meta(const Val& v) override;
  Val constant(double value, DType dtype, const Val& like) override;
  Val literal(const Meta& m, const void* data) override;
  std::optional<HostValue> known(const Val& v) override;
  Val size_operand(const Val& v) override;
  bool any_size(const Val& v) override { return in(vary_, id(v)); }
  std::optional<SizeValues> size_values(const Val& v) override;
  void fix(const Val& v) override;

 private:
  std::optional<ConstTensor> folded(ValueId v);
  static bool in(const std::vector<bool>& set, ValueId v) {
    return static_cast<size_t>(v) < set.size() && set[static_cast<size_t>(v)];
  }
  static void put(std::vector<bool>& set, ValueId v);
  void note_sizes(NodeId n, bool sized);

  Graph* g_;
  InsertAt at_;
  Evaluator evaluate_;
  std::unordered_map<ValueId, ConstTensor> folds_;
  bool any_sizes_ = false;
  std::vector<bool> vary_;   // values whose shape follows from those of inputs, or from values
  std::vector<bool> sizes_;  // values that are computed from shapes alone, at least one of which varies
  std::vector<bool> fixed_;  // values that are computed from constants alone
  std::unordered_map<ValueId, ValueId> shapes_;  // shape_of of a value
};

/// Adds a 0-d (or `m`-shaped, filled) constant.
ValueId add_scalar(Graph& g, double value, const Meta& m);
/// Replaces node `n` by its op's decompose rule. False when the op has none.
bool decompose_node(Graph& g, NodeId n);

}  // namespace mge::ir
