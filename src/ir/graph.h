// The IR: one function as mutable SSA. Trace records into it, passes rewrite it, files hold it, plan compiles it.
//   Graph g("step");
//   ValueId x = g.add_input("x", meta), w = g.add_var("w", meta_w);
//   ValueId y = g.add1("matmul", make_attrs(MatmulAttrs{.tb = true}), {x, w}, g.loc("train.py", 31));
//   g.add_output("y", y);
// State is explicit: a Var is read through its `in` value, and `commit` names the value it holds after the run. Effects
// are ordered by tokens: every kEffect or kRandom node consumes the token of the one before it in its domain (a
// generator, a process group; ADR 0024), so no pass can swap two of them; those of different domains may be. Sizes that
// follow from other sizes or from values are operands, too: Node::sizes says which attributes they are, the attributes
// hold the numbers of the call that was recorded, and bind (ir/bind.h) puts in those of another call. Guards are what
// must hold of such numbers for the graph to be right. Ids stay valid until the node or constant is erased; they are
// never reused. Node order is a topological order.
#pragma once
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/small_vec.h"
#include "core/meta.h"
#include "core/storage.h"
#include "op/opdef.h"

namespace mge::ir {

using ValueId = int32_t;
using NodeId = int32_t;
using LocId = int32_t;
constexpr int32_t kNone = -1;
constexpr LocId kNoLoc = 0;

/// Where in the user's program a node comes from. note: "backward", or empty. scope: the path of modules that were
/// running ("net.conv1"), or empty; it may be known where the file is not.
struct Loc {
  std::string file;
  int line = 0;
  std::string function, note, scope;
  bool operator==(const Loc&) const = default;
  std::string str() const;  // "train.py:31 in step (backward)"; empty when unknown
};

/// An op as the user wrote it, of which a pass or a decomposition made something else.
struct Origin {
  std::string op, call;  // "div", "div(x: float32[4], float32[]) {…}"
  LocId loc = kNoLoc;
  bool operator==(const Origin&) const = default;
};

enum class ValueKind : uint8_t { Input, Const, Var, Result, Token };

struct Value {
  Meta meta;
  ValueKind kind = ValueKind::Result;
  bool erased = false;
  NodeId producer = kNone;    // Result and Token
  int index = 0;              // which output of the producer; or position in inputs(), constants(), vars()
  std::string name;           // inputs and vars have one, others may; need not be unique among results
  SmallVec<NodeId, 2> users;  // one entry per operand, so x*x lists its node twice; tokens included
};

/// An integer attribute, or an element of a list, that is what a value holds (SizeOperand).
struct SizeUse {
  int field = 0, element = SizeOperand::kWhole;
  ValueId value = kNone;
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVec<ValueId, 4> inputs;
  SmallVec<SizeUse, 1> sizes;
  SmallVec<ValueId, 2> outputs;
  ValueId token_in = kNone, token_out = kNone;  // kEffect and kRandom nodes only
  int32_t domain = kNone;                       // and what they act on
  LocId loc = kNoLoc;
  SmallVec<int32_t, 1> origins;  // what it stands for (Graph::origin); none: it is the user's op itself
  uint64_t rerun = 0;  // computed again on purpose, to keep nothing meanwhile: equal to nodes of the same rerun alone
  bool erased = false;
  NodeId prev = kNone, next = kNone;
};

/// Contiguous bytes of one constant in host memory, whatever device its meta names (a program brings it there), shared
/// with whoever else holds the storage. A null storage is allowed (text
/// printed without data) and refused by plan.
struct Constant {
  ValueId value = kNone;
  RefPtr<Storage> storage;
  size_t offset = 0;  // bytes
  const void* data() const { return static_cast<const char*>(storage->ptr) + offset; }
};

struct Var {
  ValueId in = kNone;
  ValueId out = kNone;  // kNone: read only
};

/// The recorded call decided something by these numbers; with others it is another graph.
struct Guard {
  ValueId value = kNone;
  std::vector<char> want;  // its bytes in the recorded call
  LocId loc = kNoLoc;
};

struct Output {
  std::string name;
  ValueId value = kNone;
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)), locs_(1) {}
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  /// Same ids, shared constant storage.
  Graph clone() const { return Graph(*this); }

  // Building. Names of inputs and vars must be new and not empty (Value error).
  ValueId add_input(std::string name, const Meta& m);
  ValueId add_var(std::string name, const Meta& m);
  ValueId add_constant(const Meta& m, RefPtr<Storage> storage, size_t offset = 0, std::string name = {});
  /// Copies `bytes` (m.bytes() of them) into new storage.
  ValueId add_constant_copy(const Meta& m, const void* bytes, std::string name = {});
  /// Infers the output metas (its errors go to the caller) and appends, or inserts before node `before`.
  NodeId add_node(const OpDef& op, Attrs attrs, std::span<const ValueId> in, LocId loc = kNoLoc, NodeId before = kNone);
  /// Appends to Node::sizes.
  void add_size(NodeId n, const SizeUse& use);
  void add_guard(Guard g);
  /// add_node by name for ops with one output; null attrs mean the defaults.
  ValueId add1(std::string_view op, Attrs attrs, std::initializer_list<ValueId> in, LocId loc = kNoLoc);
  /// An empty name becomes the value's name or "out<i>".
  void add_output(std::string name, ValueId v);
  void set_output_name(size_t index, std::string name) { outputs_[index].name = std::move(name); }
  /// Keeps only the outputs of these names, in the order they have; what only the others needed is dead code.
  void keep_outputs(std::span<const std::string> names);
  /// Takes out the inputs that nothing reads; the positions that the others had.
  std::vector<size_t> drop_unused_inputs();
  /// After a run, var `index` holds `v`; kNone takes the commit back.
  void commit(size_t var_index, ValueId v);
  LocId loc(std::string_view file, int line, std::string_view function = {}, std::string_view note = {},
            std::string_view scope = {});
  LocId loc(const Loc& l) { return loc(l.file, l.line, l.function, l.note, l.scope); }
  void set_name(ValueId v, std::string name) { values_[v].name = std::move(name); }
  /// `made` does what `of` did, which is still there: it stands for what that stood for, or for that itself.
  void stand_for(NodeId made, NodeId of);
  /// Likewise for a node of another graph.
  void stand_for(NodeId made, const Graph& other, NodeId of);
  void add_origin(NodeId made, const Origin& o);
  /// Lines were known and left out when the graph was written to a file.
  void set_stripped(bool on) { stripped_ = on; }

  // Reading.
  const Origin& origin(int32_t id) const { return origins_[static_cast<size_t>(id)]; }
  bool is_stripped() const { return stripped_; }
  const std::string& name() const { return name_; }
  const Node& node(NodeId n) const { return nodes_[n]; }
  const Value& value(ValueId v) const { return values_[v]; }
  const Meta& meta(ValueId v) const { return values_[v].meta; }
  const OpDef* producer_op(ValueId v) const;  // null for inputs, constants, vars
  std::span<const ValueId> inputs() const { return inputs_; }
  std::span<const Constant> constants() const { return constants_; }  // erased ones have value kNone
  std::span<const Var> vars() const { return vars_; }
  std::span<const Output> outputs() const { return outputs_; }
  std::span<const Guard> guards() const { return guards_; }
  /// Some attribute or guard waits for a value: bind comes before passes and plans.
  bool is_sized() const { return !guards_.empty() || n_sizes_ > 0; }
  const Constant* constant_of(ValueId v) const;  // null when v is no constant
  const Loc& location(LocId l) const { return locs_[l]; }
  const Loc& location_of(NodeId n) const { return locs_[nodes_[n].loc]; }
  size_t n_locations() const { return locs_.size(); }
  /// Position in inputs()/outputs()/vars(), or kNone.
  int find_input(std::string_view name) const;
  int find_output(std::string_view name) const;
  int find_var(std::string_view name) const;
  /// Live nodes in order: a snapshot, so the loop may edit the graph (check node(n).erased).
  std::vector<NodeId> order() const;
  NodeId last() const { return tail_; }
  NodeId first() const { return head_; }  // for (n = first(); n != kNone; n = node(n).next)
  size_t n_nodes() const { return live_; }
  size_t n_values() const { return values_.size(); }  // ids run below this, erased ones included
  size_t n_node_ids() const { return nodes_.size(); }
  /// Uses by nodes, outputs, commits and guards.
  size_t use_count(ValueId v) const;
  /// Some graph output, commit or guard is this value.
  bool escapes(ValueId v) const;
  /// What a node with a token acts on: "generator %3" (the value its state comes from) or "effect world".
  std::string domain_of(NodeId n) const;
  /// Empty, or why node `n` cannot stand before node `before` (kNone: at the end) instead of where it is.
  std::string refuse_move(NodeId n, NodeId before) const;

  // Rewriting.
  /// Everything that read `from` reads `to`: nodes, outputs, commits. Types must agree.
  void replace_all_uses(ValueId from, ValueId to);
  void replace_input(NodeId n, size_t slot, ValueId v);
  /// The node's results must be unused; its token, if any, is spliced out of the chain.
  void erase(NodeId n);
  void erase_constant(ValueId v);  // must be unused
  /// Gives input `index` another meta; call infer_all afterwards.
  void set_input_meta(size_t index, const Meta& m) { values_[inputs_[index]].meta = m; }
  /// Puts numbers in the place of Node::sizes.
  void bind_node(NodeId n, Attrs attrs);
  /// Recomputes the metas of the node's results.
  void infer(NodeId n);
  void drop_guards() { guards_.clear(); }
  /// Every value is there, and what is computed from them.
  void place(const CompNode* cn);
  /// One value: what an op without inputs computes is where it was asked for.
  void place(ValueId v, const CompNode* cn) { values_[v].meta.cn = cn; }
  /// An internal error where refuse_move has a reason.
  void move(NodeId n, NodeId before);
  /// All nodes in another order, which must be topological too, tokens included; an internal error otherwise.
  void reorder(std::span<const NodeId> order);
  /// Leaves inputs, vars and outputs with their types, for whoever runs what was made of the rest.
  void drop_nodes();
  void set_loc(NodeId n, LocId l) { nodes_[n].loc = l; }
  void set_rerun(NodeId n, uint64_t rerun) { nodes_[n].rerun = rerun; }
  /// Recomputes the meta of every result. An infer error gets the node's location appended.
  void infer_all();
  /// Every committed value still has the type of its var.
  void check_commits() const;

 private:
  friend struct GraphTestPeer;  // tests break invariants through it to see the verifier notice
  Graph(const Graph&) = default;
  ValueId new_value(const Meta& m, ValueKind kind, std::string name);
  void check_new_name(const std::string& name) const;
  void link(NodeId n, NodeId before);
  void unlink(NodeId n);
  void thread_token(NodeId n);
  void thread_all_tokens();
  bool set_input(NodeId n, size_t slot, ValueId v);
  void drop_user(ValueId v, NodeId n);

  std::string name_;
  std::deque<Node> nodes_;  // deques: references survive add_node
  std::deque<Value> values_;
  std::vector<ValueId> inputs_;
  std::vector<Constant> constants_;
  std::vector<Var> vars_;
  std::vector<Output> outputs_;
  std::vector<Guard> guards_;
  size_t n_sizes_ = 0;
  bool stripped_ = false;
  std::vector<Origin> origins_;
  std::vector<Loc> locs_;  // [0] is "unknown"
  std::unordered_map<uint64_t, LocId> loc_ids_;
  NodeId head_ = kNone, tail_ = kNone;
  std::vector<std::pair<std::string, ValueId>> domains_;  // what domain_of says, and the token it starts with
  size_t live_ = 0;
};

/// What the node does, as errors say it: op, inputs with their names where they have any, attributes.
std::string describe_node(const Graph& g, NodeId n);

/// A rewrite that adds nodes and erases others: those added stand for those erased. Nodes are erased through it.
///   Rewrite r(g);
///   NodeId made = g.add_node(...);
///   r.erase(old);
class Rewrite {
 public:
  explicit Rewrite(Graph& g) : g_(g), first_(g.n_node_ids()) {}
  void erase(NodeId n);

 private:
  Graph& g_;
  size_t first_;
};

/// Ops whose order is fixed by tokens.
inline bool takes_token(const OpDef& op) { return op.traits & (kEffect | kRandom); }

}  // namespace mge::ir

namespace mge {
using ir::Graph;
}
