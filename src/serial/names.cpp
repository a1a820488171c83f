#include "serial/names.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compat/names.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge::serial {
namespace {

std::string number_text(const Meta& m, const void* p) {
  auto whole = [](auto v) { return std::to_string(v); };
  switch (m.dtype) {
    case DType::F32:
      return format("{}", *static_cast<const float*>(p));
    case DType::F64:
      return format("{}", *static_cast<const double*>(p));
    case DType::I32:
      return whole(*static_cast<const int32_t*>(p));
    case DType::I64:
      return whole(*static_cast<const int64_t*>(p));
    case DType::I16:
      return whole(*static_cast<const int16_t*>(p));
    case DType::U16:
      return whole(*static_cast<const uint16_t*>(p));
    case DType::I8:
      return whole(*static_cast<const int8_t*>(p));
    case DType::U8:
    case DType::Bool:
      return whole(*static_cast<const uint8_t*>(p));
    default:
      return {};
  }
}

// const<2>[4] for one number, const{3,1}[7] for others; the number in brackets, an op's as the
// original counts them (ops even, variables odd), makes it unlike any other.
std::string constant_name(const Graph& g, const ir::Constant& c) {
  const Meta& m = g.meta(c.value);
  std::string number = m.shape.numel() == 1 && c.storage ? number_text(m, c.data()) : "";
  if (!number.empty()) return format("const<{}>[{}]", number, 2 * c.value);
  std::string shape = m.shape.str();  // "[3,1]"
  return format("const{{{}}}[{}]", shape.substr(1, shape.size() - 2), 2 * c.value);
}

// x[0] is one op of the original and two of ours: a slice, and a squeeze of the axes it left with one entry.
bool is_rest_of_index(const Graph& g, const ir::Node& n) {
  if (n.op->name != "squeeze") return false;
  const ir::NodeId from = g.value(n.inputs[0]).producer;
  if (from == ir::kNone || g.node(from).op->name != "slice" || g.node(from).loc != n.loc) return false;
  const auto& axes = attrs_as<AxesAttrs>(n.attrs.get()).axes;
  const auto& sliced = attrs_as<SliceAttrs>(g.node(from).attrs.get()).axes;
  return g.use_count(n.inputs[0]) == 1 && !axes.empty() && std::all_of(axes.begin(), axes.end(), [&](int64_t a) {
           return std::find(sliced.begin(), sliced.end(), a) != sliced.end();
         });
}

bool holds_one(const Ints& v) { return std::find(v.begin(), v.end(), 1) != v.end(); }

// Where the original makes a constant on behalf of an op, that takes a name of the op: a 1 for the first reduction of
// everything, if no index has made one before, and the number of the first fill_like.
class HiddenConstants {
 public:
  /// The type whose name is taken before node `n` gets its own; empty: none.
  std::string before(const ir::Node& n) {
    if (n.op->name == "slice") {
      const auto& at = attrs_as<SliceAttrs>(n.attrs.get());
      one_ |= holds_one(at.starts) || holds_one(at.stops);
    }
    if (n.op->name == "reduce" && attrs_as<ReduceAttrs>(n.attrs.get()).axes.empty() && !std::exchange(one_, true))
      return "Reduce";
    return n.op->name == "fill_like" && !std::exchange(filled_, true) ? "FillLike" : "";
  }

 private:
  bool one_ = false, filled_ = false;
};

}  // namespace

std::vector<std::string> opr_types(const Graph& g, ir::NodeId n) {
  const ir::Node& node = g.node(n);
  SmallVec<const Meta*, 4> in;
  for (ir::ValueId v : node.inputs) in.push_back(&g.meta(v));
  return compat::opr_types(*node.op, node.attrs.get(), {in.data(), in.size()});
}

std::vector<std::vector<std::string>> opr_names(const Graph& g) {
  std::vector<std::vector<std::string>> out(g.n_node_ids());
  std::unordered_map<std::string, int> count, next;
  HiddenConstants hidden;
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const std::string& scope = g.location_of(n).scope;
    if (is_rest_of_index(g, g.node(n))) continue;
    std::vector<std::string> types = opr_types(g, n);
    if (std::string first = hidden.before(g.node(n)); !first.empty()) types.insert(types.begin(), std::move(first));
    for (std::string& type : types) {
      out[static_cast<size_t>(n)].push_back(scope.empty() ? std::move(type) : scope + "." + type);
      ++count[out[static_cast<size_t>(n)].back()];
    }
  }
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next)
    for (std::string& name : out[static_cast<size_t>(n)])
      if (count[name] > 1) {
        const int i = next[name]++;
        name += "[" + std::to_string(i) + "]";
      }
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next)
    if (is_rest_of_index(g, g.node(n))) {
      std::string& slice = out[static_cast<size_t>(g.value(g.node(n).inputs[0]).producer)].back();
      out[static_cast<size_t>(n)].push_back(slice);
      slice += ":slice";
    }
  return out;
}

void name_values(Graph& g) {
  std::vector<std::vector<std::string>> oprs = opr_names(g);
  std::unordered_set<std::string> taken;
  auto name = [&](ir::ValueId v, const std::string& wanted) {
    std::string s = wanted;
    for (int i = 1; !taken.insert(s).second; ++i) s = wanted + "[" + std::to_string(i) + "]";
    if (s != g.value(v).name) g.set_name(v, std::move(s));
  };
  auto own = [&](ir::ValueId v) {
    if (!g.value(v).name.empty()) name(v, std::string(g.value(v).name));
  };
  // Those that a user gave keep their form; made ones give way.
  for (ir::ValueId v : g.inputs()) taken.insert(g.value(v).name);
  for (auto& v : g.vars()) taken.insert(g.value(v.in).name);
  for (auto& c : g.constants())
    if (c.value != ir::kNone) own(c.value);
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next)
    for (ir::ValueId v : g.node(n).outputs) own(v);
  for (auto& c : g.constants())
    if (c.value != ir::kNone && g.value(c.value).name.empty()) name(c.value, constant_name(g, c));
  for (ir::NodeId n = g.first(); n != ir::kNone; n = g.node(n).next) {
    const ir::Node& node = g.node(n);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (g.value(node.outputs[i]).name.empty())
        name(node.outputs[i],
             oprs[static_cast<size_t>(n)].back() + compat::result_suffix(*node.op, node.attrs.get(), i));
  }
}

}  // namespace mge::serial
