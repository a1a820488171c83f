// What rewriting passes share: rules that look at one node, tried on all nodes until none applies.
//   constexpr Rule kRules[] = {{"neg", double_negation}, ...};
//   bool canonicalise(Graph& g) { return apply_rules(g, kRules, ctx); }
// A rule returns what takes the place of the node's first result, or kNone. Nodes it makes stand before the node and
// carry its line, so an error in one names what the user wrote.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace mge::pass {

struct Rewriter {
  Graph& g;
  bool bound = true;      // sizes are those of the call; otherwise the graph is for any
  uint32_t rewrites = 0;  // what may change values (Rewrite)
  ir::NodeId n = ir::kNone;

  const ir::Node& node() const { return g.node(n); }
  ir::ValueId in(size_t i) const { return node().inputs[i]; }
  const Meta& meta() const { return g.meta(node().outputs[0]); }
  bool asked(uint32_t bit) const { return rewrites & bit; }

  /// The node that computes v when it is `op`; kNone.
  ir::NodeId made_by(ir::ValueId v, std::string_view op) const;
  /// The operand of the unary node `op` that computes v; kNone.
  ir::ValueId of(ir::ValueId v, std::string_view op) const;
  bool is_const(ir::ValueId v) const { return g.constant_of(v) != nullptr; }
  /// What every element of the constant v is (real dtypes).
  std::optional<double> number(ir::ValueId v) const;
  /// The result is just like x, and stays so for other sizes if the graph may get them.
  bool same_as(ir::ValueId x) const;
  /// Emits before the node. Null attributes are the defaults.
  ir::ValueId emit(std::string_view op, Attrs attrs, std::initializer_list<ir::ValueId> in);
  ir::ValueId scalar_like(double value, ir::ValueId x);
};

struct Rule {
  const char* op;  // tried on nodes of this op
  ir::ValueId (*rewrite)(Rewriter& r);
  uint32_t rewrite_bit = 0;  // of Rewrite: only when asked for
};

/// True when something changed. What is not read any more is erased.
bool apply_rules(Rewriter r, std::span<const Rule> rules);

/// `to` stands for `from` everywhere, and for its name in dumps.
void replace_value(Graph& g, ir::ValueId from, ir::ValueId to);
/// Erases the node if nobody reads it, and then what only it read.
void erase_unread(Graph& g, ir::NodeId n);
void erase_unread(Graph& g, ir::NodeId n, ir::Rewrite& rewrite);

/// Every value of `from` is one of `to`: casting there loses nothing.
bool holds_exactly(DType to, DType from);

}  // namespace mge::pass
