// What the writer's rules use: the node at hand, and operators of MegEngine put behind one another. A rule turns one
// node of ours into one or more of theirs; MegEngine has no tensors of rank 0, so a scalar is a vector of one element
// there.
#pragma once
#include <algorithm>
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "serial/mgb/file.h"

namespace mge::serial::mgb {

using VarId = uint32_t;
using Vars = std::vector<VarId>;
using Fields = std::vector<compat::NamedParam>;

class Oprs {
 public:
  Oprs(const Graph& g, int format, bool older) : g_(g), vars_(g.n_values(), kNoVar), format_(format), older_(older) {
    file.format = format;
    file.versioned_ids = !older;
  }

  // The node at hand.
  const ir::Node& node() const { return *node_; }
  size_t n_in() const { return node_->inputs.size(); }
  VarId in(size_t i) { return of(node_->inputs[i]); }
  const Meta& meta(size_t i) const { return g_.meta(node_->inputs[i]); }
  const Meta& out_meta(size_t i = 0) const { return g_.meta(node_->outputs[i]); }
  bool used(size_t i) const { return g_.use_count(node_->outputs[i]) > 0; }
  template <class A>
  const A& attrs() const {
    return attrs_as<A>(node_->attrs.get());
  }
  void result(VarId v, size_t i = 0) { vars_[static_cast<size_t>(node_->outputs[i])] = v; }
  const Graph& graph() const { return g_; }
  bool older() const { return older_; }
  /// What attribute `field` waits for, in numbers and as a var. A rule that does not ask for one is an error.
  struct Sizes {
    Ints now;
    VarId var;
    bool known;  // no value decides them
  };
  Sizes sizes(const char* field);
  /// The var that element `i` of attribute `field` comes from; kNoVar: it is a number.
  VarId size_var(const char* field, int i);
  /// The rule says in another way what they decide.
  void sizes_are_written() { asked_ = ~uint64_t{0}; }
  bool all_sizes_written() const {
    return std::ranges::all_of(node_->sizes, [&](auto& s) { return asked_ >> s.field & 1; });
  }

  // Operators.
  static constexpr VarId kNoVar = UINT32_MAX;
  Vars opr(const char* type, const char* table, Fields fields, Vars inputs, size_t n_out = 1);
  Opr& last() { return file.oprs.back(); }
  VarId opr1(const char* type, const char* table, Fields fields, Vars inputs) {
    return opr(type, table, std::move(fields), std::move(inputs))[0];
  }
  VarId elemwise(std::string_view mode, Vars inputs);
  VarId compare(std::string_view mode, Vars inputs);  // a bool
  VarId number(double value, DType t);
  VarId ints(std::span<const int64_t> values);  // int32
  VarId ints(std::initializer_list<int64_t> values) { return ints(std::span(values.begin(), values.size())); }
  VarId constant(const Meta& m, Bytes data, std::string name = {});
  VarId convert(VarId x, DType t, const Quant& q = {});
  VarId shape_of(VarId x);
  /// Elements begin..end of a vector; an end of INT32_MAX is open.
  VarId part(VarId x, int64_t begin, int64_t end);
  VarId join(Vars parts, int64_t axis = 0);
  VarId reshape(VarId x, VarId shape, int64_t open_axis = 7);
  VarId reshape(VarId x, std::initializer_list<int64_t> shape);  // one may be -1
  VarId broadcast(VarId x, VarId shape) { return opr1("Broadcast", "Empty", {}, {x, shape}); }
  VarId dimshuffle(VarId x, const Ints& pattern, int rank);
  VarId add_axes(VarId x, Ints axes);               // of the result, ascending
  VarId remove_axes(VarId x, Ints axes, int rank);  // what is left of it when none is, is a vector of one element
  VarId reduce(const char* mode, VarId x, int64_t axis, int64_t data_type = 0);
  static Ints normal(const Ints& axes, int rank);

  /// Sizes are computed in 64 bits here; those files have 32.
  static DType narrow(DType t) { return t == DType::F64 ? DType::F32 : t == DType::I64 ? DType::I32 : t; }

  VarId of(ir::ValueId v);
  void start(ir::NodeId n) {
    node_ = &g_.node(n);
    asked_ = 0;
  }

  File file;
  std::vector<std::string> names;             // of vars
  std::deque<std::vector<uint8_t>> literals;  // what `constant` points to

 private:
  const Graph& g_;
  std::vector<VarId> vars_;
  const ir::Node* node_ = nullptr;
  uint64_t asked_ = 0;  // a bit for each attribute
  int format_;
  bool older_;
  std::unordered_map<std::string, VarId> shared_;  // small constants, by their bytes
  std::unordered_map<VarId, VarId> shape_of_;      // shapes, and of what they are
};

/// A number as a tensor of that dtype holds it.
std::string scalar_bytes(double value, DType t);

using Rule = void (*)(Oprs&);
struct RuleRow {
  const char* op;
  Rule rule;
  /// Null: every node of the op; otherwise an empty text for those it takes.
  std::string (*refuse)(const Graph&, const ir::Node&) = nullptr;
};
/// For readers of version 8.14. Why an op cannot be written for them as it is; empty: it can.
std::string newer_than_814(std::string_view op);
/// A mode of Elemwise in older ones; kNoVar: it is old enough.
VarId older_elemwise(Oprs& w, std::string_view mode, const Vars& in);
VarId older_compare(Oprs& w, std::string_view mode, const Vars& in);

std::span<const RuleRow> elementwise_rules();
std::span<const RuleRow> shape_rules();
std::span<const RuleRow> index_rules();
std::span<const RuleRow> nn_rules();

}  // namespace mge::serial::mgb
