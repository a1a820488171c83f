#include "serial/mgb/write.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "compat/op_class.h"
#include "ir/builder.h"
#include "serial/mgb/encode.h"
#include "serial/mgb/write_impl.h"
#include "serial/names.h"
#include "serial/xxh64.h"

namespace mge::serial::mgb {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Types that the second format writes without the suffix, as version 2.
struct TypeName {
  std::string_view v1, v2;
};
constexpr TypeName kSecond[] = {
    {"ConvolutionV2", "Convolution"},
    {"ConvolutionBackwardDataV2", "ConvolutionBackwardData"},
    {"ConvolutionBackwardFilterV2", "ConvolutionBackwardFilter"},
    {"ConvBiasForwardV4", "ConvBiasForward"},
    {"Convolution3D", "Convolution3D"},
    {"Convolution3DBackwardData", "Convolution3DBackwardData"},
    {"Softmax", "Softmax"},
    {"ImmutableTensor", "ImmutableTensor"},
    {"Host2DeviceCopy", "Host2DeviceCopy"},
    {"DeformableConvForwardV1", "DeformableConvForward"},
};

int64_t member(std::string_view cls, std::string_view name) {
  return compat::parse_member(*compat::get(cls).fields[0].members, name);
}

}  // namespace

Vars Oprs::opr(const char* type, const char* table, Fields fields, Vars inputs, size_t n_out) {
  Opr o;
  o.type = type;
  if (format_ == 2)
    for (auto& t : kSecond)
      if (t.v1 == o.type) {
        o.type = t.v2;
        o.version = 2;
      }
  if (table) o.params.push_back({&table_named(table), std::move(fields)});
  o.inputs = std::move(inputs);
  Vars out;
  for (size_t i = 0; i < n_out; ++i) {
    out.push_back(static_cast<VarId>(file.vars.size()));
    file.vars.emplace_back();
  }
  o.outputs = out;
  file.oprs.push_back(std::move(o));
  return out;
}

VarId Oprs::elemwise(std::string_view mode, Vars inputs) {
  if (const VarId v = older_ ? older_elemwise(*this, mode, inputs) : kNoVar; v != kNoVar) return v;
  return opr1("Elemwise", "Elemwise", {{"mode", member("Elemwise", mode)}}, std::move(inputs));
}
VarId Oprs::compare(std::string_view mode, Vars inputs) {
  if (older_) return older_compare(*this, mode, inputs);
  const VarId v =
      opr1("ElemwiseMultiType", "ElemwiseMultiType", {{"mode", member("ElemwiseMultiType", mode)}}, std::move(inputs));
  last().output_dtype = {DType::Bool, {}};
  return v;
}

namespace {

template <class From, class To>
void copy_as(Bytes from, std::vector<uint8_t>& to) {
  for (size_t i = 0; i + sizeof(From) <= from.size(); i += sizeof(From)) {
    From v;
    std::memcpy(&v, from.data() + i, sizeof v);
    const auto n = static_cast<To>(v);
    to.insert(to.end(), reinterpret_cast<const uint8_t*>(&n), reinterpret_cast<const uint8_t*>(&n) + sizeof n);
  }
}

}  // namespace

VarId Oprs::constant(const Meta& m, Bytes data, std::string name) {
  Tensor t;
  t.meta = m;
  t.meta.dtype = Oprs::narrow(m.dtype);
  if (t.meta.dtype != m.dtype) {
    auto& short_ones = literals.emplace_back();
    m.dtype == DType::F64 ? copy_as<double, float>(data, short_ones) : copy_as<int64_t, int32_t>(data, short_ones);
    data = short_ones;
  }
  if (t.meta.shape.rank == 0) t.meta.shape = Shape{1};
  t.comp_node = "xpux:0";
  t.has_data = true;
  t.data = data;
  const VarId v = opr("ImmutableTensor", nullptr, {}, {})[0];
  last().tensors.push_back(std::move(t));
  file.vars[v].name = std::move(name);
  return v;
}

std::string scalar_bytes(double v, DType t) {
  Graph g;
  Meta m;
  m.dtype = t;
  const ir::Constant* c = g.constant_of(ir::add_scalar(g, v, m));
  return {static_cast<const char*>(c->data()), m.bytes()};
}

VarId Oprs::number(double value, DType given) {
  const DType t = narrow(given);
  std::string bytes = scalar_bytes(value, t);
  auto [at, fresh] = shared_.try_emplace(format("{}:", dtype_name(t)) + bytes, kNoVar);
  if (!fresh) return at->second;
  Meta m;
  m.dtype = t;
  auto& data = literals.emplace_back(bytes.begin(), bytes.end());
  return at->second = constant(m, data);
}
VarId Oprs::ints(std::span<const int64_t> values) {
  std::vector<uint8_t> bytes;
  for (int64_t v : values) {
    const auto n = static_cast<int32_t>(v);
    bytes.insert(bytes.end(), reinterpret_cast<const uint8_t*>(&n), reinterpret_cast<const uint8_t*>(&n) + 4);
  }
  auto [at, fresh] = shared_.try_emplace("ints:" + std::string(bytes.begin(), bytes.end()), kNoVar);
  if (!fresh) return at->second;
  Meta m;
  m.dtype = DType::I32;
  m.shape = Shape{static_cast<int64_t>(values.size())};
  return at->second = constant(m, literals.emplace_back(std::move(bytes)));
}

VarId Oprs::convert(VarId x, DType given, const Quant& q) {
  const DType t = narrow(given);
  return opr1("TypeCvtV2", "DType", {{"dtype", compat::TypeParam{t, q}}}, {x});
}
VarId Oprs::part(VarId x, int64_t begin, int64_t end) {
  const bool open = end == INT32_MAX;
  Vars in{x, ints({begin})};
  if (!open) in.push_back(ints({end}));
  return opr1("Subtensor", "IndexDescMaskDump", {{"items", compat::Rows{Ints{0, 1, !open, 0, 0}}}}, in);
}
VarId Oprs::join(Vars parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  const VarId v = opr1("Concat", "Axis", {{"axis", axis}}, std::move(parts));
  last().comp_node = "xpux:0";
  return v;
}
VarId Oprs::shape_of(VarId x) {
  const VarId shape = opr1("GetVarShapeV1", "OptionalAxisV1", {}, {x});
  shape_of_[shape] = x;
  return shape;
}
VarId Oprs::reshape(VarId x, VarId shape, int64_t open_axis) {
  // Their loader makes x of x.reshape(x.shape), and then misses an operator.
  if (auto at = shape_of_.find(shape); at != shape_of_.end() && at->second == x) return x;
  return opr1("ReshapeV1", "OptionalAxisV1", {{"axis", open_axis}}, {x, shape});
}
VarId Oprs::reshape(VarId x, std::initializer_list<int64_t> shape) {
  int64_t open = 7;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape.begin()[i] < 0) open = static_cast<int64_t>(i);
  return reshape(x, ints(shape), open);
}
VarId Oprs::dimshuffle(VarId x, const Ints& pattern, int rank) {
  return opr1("Dimshuffle", "Dimshuffle", {{"pattern", pattern}, {"ndim", int64_t{rank}}}, {x});
}
VarId Oprs::add_axes(VarId x, Ints axes) {
  if (axes.empty()) return x;
  compat::Rows steps;
  std::sort(axes.begin(), axes.end());
  for (int64_t a : axes) steps.push_back({0, a});
  return opr1("AxisAddRemove", "AxisAddRemove", {{"desc", steps}}, {x});
}
VarId Oprs::remove_axes(VarId x, Ints axes, int rank) {
  if (axes.empty()) return x;
  if (static_cast<int>(axes.size()) == rank) return rank == 1 ? x : reshape(x, {1});
  compat::Rows steps;
  std::sort(axes.begin(), axes.end());
  for (size_t i = axes.size(); i-- > 0;) steps.push_back({1, axes[i]});
  return opr1("AxisAddRemove", "AxisAddRemove", {{"desc", steps}}, {x});
}
VarId Oprs::reduce(const char* mode, VarId x, int64_t axis, int64_t data_type) {
  return opr1("ReduceV2", "Reduce", {{"mode", member("Reduce", mode)}, {"axis", axis}, {"data_type", data_type}}, {x});
}
Ints Oprs::normal(const Ints& axes, int rank) {
  Ints out;
  for (int64_t a : axes) out.push_back(a < 0 ? a + rank : a);
  return out;
}

VarId Oprs::of(ValueId v) {
  VarId& at = vars_[static_cast<size_t>(v)];
  if (at != kNoVar) return at;
  const ir::Value& x = g_.value(v);
  if (const ir::Constant* c = g_.constant_of(v)) {
    MGE_CHECK(c->storage, Value, "dump: constant '{}' has no data.", x.name);
    const auto* p = static_cast<const uint8_t*>(c->data());
    if (!is_packed(x.meta.dtype) || x.meta.shape.rank == 0 || x.meta.shape.back() % 2 == 0)
      return at = constant(x.meta, {p, x.meta.bytes()}, x.name);
    const int64_t inner = x.meta.shape.back(), row = (inner + 1) / 2, n = x.meta.shape.numel();
    auto& rows = literals.emplace_back(static_cast<size_t>(n / inner * row));  // rows start at whole bytes
    for (int64_t i = 0; i < n; ++i) {
      const int half = i % 2 ? p[i / 2] >> 4 : p[i / 2] & 15;
      rows[static_cast<size_t>(i / inner * row + i % inner / 2)] |=
          static_cast<uint8_t>(half << (i % inner % 2 ? 4 : 0));
    }
    return at = constant(x.meta, rows, x.name);
  }
  if (x.kind == ir::ValueKind::Input) {
    Tensor t;
    t.meta = x.meta;
    if (t.meta.shape.rank == 0) t.meta.shape = Shape{1};
    t.name = x.name;
    t.comp_node = "xpux:0";
    at = opr("Host2DeviceCopy", "Host2DeviceCopy", {}, {})[0];
    last().tensors.push_back(std::move(t));
    file.vars[at].name = x.name;
    return at;
  }
  fail(ErrorKind::Internal, "dump: value %{} has no var", v);
}

Oprs::Sizes Oprs::sizes(const char* field) {
  const std::vector<NamedAttr> values = node_->attrs->values();
  int at = 0;
  while (values[static_cast<size_t>(at)].name != field) ++at;
  asked_ |= uint64_t{1} << at;
  const auto& now = std::get<Ints>(values[static_cast<size_t>(at)].value);
  std::vector<ValueId> parts(now.size(), kNone);
  bool any = false;
  for (auto& s : node_->sizes) {
    if (s.field != at) continue;
    any = true;
    if (s.element == SizeOperand::kWhole) return {now, of(s.value), false};
    parts[static_cast<size_t>(s.element)] = s.value;
  }
  if (!any) return {now, ints({now.data(), now.size()}), true};
  Vars joined;
  for (size_t i = 0; i < now.size(); ++i) joined.push_back(parts[i] == kNone ? ints({now[i]}) : of(parts[i]));
  return {now, join(joined), false};
}
VarId Oprs::size_var(const char* field, int i) {
  const std::vector<NamedAttr> values = node_->attrs->values();
  for (auto& s : node_->sizes) {
    if (values[static_cast<size_t>(s.field)].name != field) continue;
    asked_ |= uint64_t{1} << s.field;
    if (s.element == i) return of(s.value);
    if (s.element == SizeOperand::kWhole) return part(of(s.value), i, i + 1);
  }
  return kNoVar;
}

namespace {

const RuleRow* find_rule(std::string_view op) {
  for (auto rows : {elementwise_rules(), shape_rules(), index_rules(), nn_rules()})
    for (auto& r : rows)
      if (op == r.op) return &r;
  return nullptr;
}

/// Whether it is computed from constants and sizes alone: whole numbers and positions, which float32 holds.
bool from_sizes(const Graph& g, ValueId v) {
  std::vector<ValueId> todo{v};
  std::set<ValueId> seen;
  while (!todo.empty()) {
    const ValueId at = todo.back();
    todo.pop_back();
    if (!seen.insert(at).second || g.constant_of(at)) continue;
    if (g.value(at).kind != ir::ValueKind::Result) return false;
    const ir::Node& n = g.node(g.value(at).producer);
    if (n.op->name == "shape_of") continue;
    if (ir::takes_token(*n.op)) return false;
    todo.insert(todo.end(), n.inputs.begin(), n.inputs.end());
    for (auto& s : n.sizes) todo.push_back(s.value);
  }
  return true;
}

std::string refuse(const Graph& g, const ir::Node& n, bool older) {
  const RuleRow* r = find_rule(n.op->name);
  if (!r && n.op->name.starts_with("dist_")) return "MegEngine's files hold nothing between processes";
  if (!r) return "none of MegEngine's operators does it";
  if (std::string why = older ? newer_than_814(n.op->name) : std::string(); !why.empty()) return why;
  for (auto& vs : {std::span<const ValueId>(n.inputs.data(), n.inputs.size()),
                   std::span<const ValueId>(n.outputs.data(), n.outputs.size())})
    for (ValueId v : vs) {
      const Meta& m = g.meta(v);
      if (g.constant_of(v) && m.shape.numel() == 0) return "a constant without elements";
      const bool size = g.is_sized() && m.shape.rank <= 1 && (m.shape.numel() <= 8 || from_sizes(g, v));
      if (dtype_number(size ? Oprs::narrow(m.dtype) : m.dtype) < 0)
        return format("{} is no type of MegEngine's", dtype_name(m.dtype));
      if (m.quant.scale != 0 && !m.quant.per_tensor()) return "MegEngine's files hold one scale per tensor";
    }
  return r->refuse ? r->refuse(g, n) : std::string();
}

/// Ops that MegEngine lacks become what they are made of, as long as they are made of something.
using Origins = std::map<NodeId, const OpDef*>;  // what a node was made of
Origins write_out(Graph& g, bool older) {
  Origins origins;
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId n : g.order()) {
      const ir::Node& x = g.node(n);
      if (refuse(g, x, older).empty() || !x.op->decompose || !x.sizes.empty() || ir::takes_token(*x.op)) continue;
      auto at = origins.find(n);
      const OpDef* origin = at != origins.end() ? at->second : x.op;
      const auto first = static_cast<NodeId>(g.n_node_ids());
      changed |= ir::decompose_node(g, n);
      for (auto k = first; k < static_cast<NodeId>(g.n_node_ids()); ++k) origins[k] = origin;
    }
  }
  return origins;
}

void check_all(const Graph& g, const Origins& origins, bool older) {
  std::map<std::string, std::set<std::string>> why;
  for (NodeId n : g.order())
    if (std::string r = refuse(g, g.node(n), older); !r.empty()) {
      const std::string at = g.location_of(n).str();
      auto origin = origins.find(n);
      const std::string& name = g.node(n).op->name;
      why[origin == origins.end() ? format("{} ({})", name, r)
                                  : format("{} (its {}: {})", origin->second->name, name, r)]
          .insert(at.empty() ? "an unknown line" : at);
    }
  std::string list;
  for (auto& [what, places] : why) {
    list += "\n  " + what + " at ";
    size_t i = 0;
    for (auto& p : places) list += i++ ? ", " + p : p;
  }
  MGE_CHECK(list.empty(), NotImplemented,
            "dump: MegEngine's format cannot hold these ops:{}\nDump in the native format (dump_format=\"native\"), or "
            "do without them.",
            list);
}

class Naming {
 public:
  std::string fresh(std::string name) {
    const int n = seen_[name]++;
    return n ? fresh(format("{}[{}]", name, n)) : name;
  }

 private:
  std::map<std::string, int> seen_;
};

/// Removes ops that no output needs; nothing else of a graph for any sizes is touched.
void drop_dead(Graph& g) {
  std::vector<NodeId> order = g.order();
  for (size_t i = order.size(); i-- > 0;) {
    const ir::Node& x = g.node(order[i]);
    if (ir::takes_token(*x.op)) continue;
    bool used = false;
    for (ValueId v : x.outputs) used |= g.use_count(v) > 0;
    if (!used) g.erase(order[i]);
  }
}

struct Checked {
  std::string name;
  double max_error;
};

class Writer {
 public:
  Writer(const Graph& g, const WriteOptions& opt) : g_(g), opt_(opt), w_(g, opt.version, opt.older) {}

  File build(bool checks, double max_error) {
    for (ValueId v : g_.inputs()) w_.of(v);
    for (NodeId n : g_.order()) emit(n);
    for (auto& o : g_.outputs()) {
      VarId v = w_.of(o.value);
      // A var has one name: what is given out twice, or comes in, goes out as a copy.
      if (outputs_.count(v) || is_source(v)) v = w_.opr1("Identity", "Empty", {}, {v});
      outputs_[v] = o.name;
      if (checks) v = check(v, o, max_error);
      w_.file.outputs.push_back({v, v, {}});
    }
    finish();
    return std::move(w_.file);
  }

  std::deque<std::vector<uint8_t>>& literals() { return w_.literals; }

 private:
  /// An input or a constant, perhaps behind ops of ours that do nothing there.
  bool is_source(VarId v) const {
    return std::ranges::any_of(w_.file.oprs, [v](const Opr& o) {
      return (o.type == "Host2DeviceCopy" || o.type == "ImmutableTensor") && o.outputs[0] == v;
    });
  }

  void emit(NodeId n) {
    w_.start(n);
    const size_t first = w_.file.oprs.size();
    const ir::Node& x = g_.node(n);
    find_rule(x.op->name)->rule(w_);
    MGE_CHECK(w_.all_sizes_written(), NotImplemented,
              "dump: MegEngine's format cannot hold {} at {} with sizes that are computed from its input. Dump in the "
              "native format (dump_format=\"native\").",
              x.op->name, g_.location_of(n).str());
    for (ValueId v : x.outputs)
      if (g_.use_count(v) > 0 && !g_.value(v).name.empty()) {
        VarInfo& var = w_.file.vars[w_.of(v)];
        if (var.name.empty()) var.name = g_.value(v).name;
      }
    for (ValueId v : x.outputs) {
      if (g_.use_count(v) == 0) continue;
      VarInfo& var = w_.file.vars[w_.of(v)];
      const Shape& s = g_.meta(v).shape;
      var.has_shape = true;
      var.shape = s.rank ? s : Shape{1};
    }
    name_oprs(n, first);
  }

  // What a node's oprs are called where their vars have no name of their own: as the original's, if it made as many.
  void name_oprs(NodeId n, size_t first) {
    const std::string& scope = g_.location_of(n).scope;
    const std::vector<std::string>& known = known_[static_cast<size_t>(n)];
    std::vector<size_t> made;
    for (size_t i = first; i < w_.file.oprs.size(); ++i)
      if (w_.file.oprs[i].type != "ImmutableTensor") made.push_back(i);
    names_.resize(w_.file.oprs.size());
    for (size_t k = 0; k < made.size(); ++k) {
      const std::string plain = plain_name(w_.file.oprs[made[k]]);
      names_[made[k]] = made.size() == known.size() ? known[k] : scope.empty() ? plain : scope + "." + plain;
    }
  }

  // err = max(|expect - get| / max(min(|expect|, |get|), 1))
  VarId check(VarId get, const ir::Output& o, double max_error) {
    Tensor t;
    t.meta = g_.meta(o.value);
    if (t.meta.shape.rank == 0) t.meta.shape = Shape{1};
    t.name = o.name + ":expect";
    t.comp_node = "xpux:0";
    const std::string name = t.name;
    const VarId expect = w_.opr("Host2DeviceCopy", "Host2DeviceCopy", {}, {})[0];
    w_.last().tensors.push_back(std::move(t));
    w_.file.vars[expect].name = name;
    const DType type = g_.meta(o.value).dtype;
    const VarId a = type == DType::F32 ? expect : w_.convert(expect, DType::F32);
    const VarId b = type == DType::F32 ? get : w_.convert(get, DType::F32);
    const VarId least = w_.elemwise("MIN", {w_.elemwise("ABS", {a}), w_.elemwise("ABS", {b})});
    const VarId scale = w_.elemwise("MAX", {least, w_.number(1, DType::F32)});
    const VarId error = w_.elemwise("TRUE_DIV", {w_.elemwise("ABS", {w_.elemwise("SUB", {a, b})}), scale});
    const VarId worst = w_.opr1("ReduceV2", "Reduce", {{"mode", member("Reduce", "MAX")}}, {error, w_.ints({1})});
    return w_.opr1("AssertEqual", "AssertEqual", {{"maxerr", max_error}}, {expect, get, worst});
  }

  void finish() {
    File& f = w_.file;
    f.version = 101300;
    f.has_metadata = opt_.metadata;
    if (opt_.metadata) {
      f.user_info = opt_.user_info;
      f.optimize_options = opt_.optimize_options;
    }
    Naming naming;
    for (auto& [v, name] : outputs_) f.vars[v].name = naming.fresh(name);
    std::vector<bool> output(f.vars.size());
    for (auto& [v, name] : outputs_) output[v] = true;
    for (size_t i = 0; i < f.oprs.size(); ++i) {
      Opr& o = f.oprs[i];
      const bool value = o.type == "ImmutableTensor", input = o.type == "Host2DeviceCopy";
      if (o.inputs.empty() && (value || input)) {
        if (opt_.keep_opr_priority) o.priority = INT32_MIN;
      }
      for (size_t k = 0; k < o.outputs.size(); ++k) {
        VarInfo& var = f.vars[o.outputs[k]];
        if (output[o.outputs[k]]) continue;
        if (input) {
          var.has_shape = true;
          var.shape = o.tensors[0].meta.shape;
          continue;
        }
        std::string base = !var.name.empty() ? var.name : value ? std::string("const") : name_of(i);
        if (var.name.empty() && o.outputs.size() > 1) base += format(":o{}", k);
        var.name = naming.fresh(std::move(base));
        if (value) {
          var.has_shape = true;
          var.shape = o.tensors[0].meta.shape;
        }
      }
      // An op keeps its own name where its result was given another.
      const std::string& called = f.vars[o.outputs[0]].name;
      const std::string own = opt_.keep_op_name && !value && !input ? name_of(i) : called;
      const bool renamed = called != own && !called.starts_with(own + ":") && !called.starts_with(own + "[");
      if (value && opt_.keep_param_name) o.tensors[0].name = f.vars[o.outputs[0]].name;
      if (opt_.keep_op_name) {
        o.name = renamed ? naming.fresh(own) : called;
        if (o.outputs.size() > 1 && o.name.ends_with(":o0")) o.name.resize(o.name.size() - 3);
      }
      if (opt_.version == 1 && opt_.keep_var_name < 2)
        for (uint32_t v : o.outputs)
          if (!output[v] || opt_.keep_var_name == 0) f.vars[v].name.clear();
    }
  }

  std::string name_of(size_t i) const {
    return i < names_.size() && !names_[i].empty() ? names_[i] : plain_name(w_.file.oprs[i]);
  }

  /// "ADD" of an Elemwise, "Convolution" of a ConvolutionV2.
  static std::string plain_name(const Opr& o) {
    if ((o.type == "Elemwise" || o.type == "ElemwiseMultiType") && !o.params[0].fields.empty())
      return std::string(compat::get(o.type)
                             .fields[0]
                             .members->members[static_cast<size_t>(std::get<int64_t>(o.params[0].fields[0].value))]);
    std::string t = o.type;
    if (t.size() > 2 && t[t.size() - 2] == 'V') t.resize(t.size() - 2);
    return t;
  }

  const Graph& g_;
  const WriteOptions& opt_;
  Oprs w_;
  std::map<VarId, std::string> outputs_;
  std::vector<std::vector<std::string>> known_ = opr_names(g_);  // of each node
  std::vector<std::string> names_;                               // of each opr; empty: none but its type
};

/// A graph of constants, in the order of their names; in the second format, but for readers that do not know it.
std::vector<uint8_t> encode_case(const TestCase& c, bool checks, bool older) {
  std::map<std::string, const TensorData*> values;
  for (auto& t : c.inputs) values[t.name] = &t;
  if (checks)
    for (auto& t : c.outputs) values[t.name + ":expect"] = &t;
  Graph none;
  Oprs w(none, older ? 1 : 2, older);
  for (auto& [name, t] : values) {
    const VarId v = w.constant(t->meta, {static_cast<const uint8_t*>(t->data()), t->meta.bytes()}, name);
    w.last().type = "SharedDeviceTensor";
    w.last().version = 1;
    w.last().tensors[0].comp_node = "cpux:0";
    w.file.outputs.push_back({v, v, {}});
  }
  w.file.version = 101300;
  return encode(w.file);
}

}  // namespace

std::vector<uint8_t> write(const Graph& given, const ModelInfo& info, const WriteOptions& opt, WriteReport* report) {
  MGE_CHECK(opt.version == 1 || opt.version == 2, Value, "dump: MegEngine has formats 1 and 2; got {}.", opt.version);
  MGE_ASSERT(!opt.older || opt.version == 1, "files for version 8.14 are of the first format");
  Graph g = given.clone();
  MGE_CHECK(std::none_of(g.vars().begin(), g.vars().end(), [](auto& v) { return v.out != kNone; }), NotImplemented,
            "dump: MegEngine's format holds no state that a run changes, and this graph does. Dump it natively.");
  drop_dead(g);
  const Origins origins = write_out(g, opt.older);
  drop_dead(g);
  check_all(g, origins, opt.older);
  const bool checks = !info.tests.empty() && info.tests[0].max_error >= 0 && !info.tests[0].outputs.empty();
  Writer writer(g, opt);
  const File file = writer.build(checks, checks ? info.tests[0].max_error : 0);
  std::vector<uint8_t> bytes = encode(file);
  if (report) {
    std::set<std::string> types, dtypes;
    report->n_ops = file.oprs.size();
    for (auto& o : file.oprs) {
      types.insert(o.type);
      for (auto& t : o.tensors) {
        report->tensor_value_bytes += t.data.size();
        dtypes.insert(std::string(dtype_name(t.meta.dtype)));
        if (t.has_data) report->params.push_back(file.vars[o.outputs[0]].name);
      }
    }
    report->opr_types.assign(types.begin(), types.end());
    report->dtypes.assign(dtypes.begin(), dtypes.end());
    report->hash = xxh64({bytes.data(), bytes.size()});
  }
  if (info.tests.empty()) return bytes;
  std::vector<std::vector<uint8_t>> cases;
  for (auto& c : info.tests) cases.push_back(encode_case(c, checks, opt.older));
  return wrap_cases(bytes, cases);
}

}  // namespace mge::serial::mgb
