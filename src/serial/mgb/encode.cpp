#include "serial/mgb/encode.h"

#include <cstring>

#include "base/error.h"
#include "serial/mgb/mgb1_generated.h"
#include "serial/mgb/mgb2_generated.h"
#include "serial/xxh64.h"

namespace mge::serial::mgb {
namespace {

using Builder = flatbuffers::FlatBufferBuilder;
template <class T>
using Off = flatbuffers::Offset<T>;
template <class T>
using Vec = flatbuffers::Offset<flatbuffers::Vector<T>>;

int64_t integer(const compat::ParamValue& v) {
  if (auto* b = std::get_if<bool>(&v)) return *b;
  return std::get<int64_t>(v);
}
double number(const compat::ParamValue& v) {
  if (auto* d = std::get_if<double>(&v)) return *d;
  return static_cast<double>(integer(v));
}

template <class Quant>
auto quant_param(Builder& b, DType t, const mge::Quant& q) {
  flatbuffers::Offset<Quant> out;
  if (!is_quant(t)) return out;
  MGE_CHECK(q.per_tensor(), NotImplemented, "dump: MegEngine's files hold one scale per tensor; got one per channel.");
  const auto start = b.StartTable();
  b.AddElement<float>(4, static_cast<float>(q.scale), 0);
  if (t == DType::QU8 || t == DType::QU4) b.AddElement<uint8_t>(6, static_cast<uint8_t>(q.zero_point), 0);
  return flatbuffers::Offset<Quant>(b.EndTable(start));
}

template <class V>
struct Tables;  // the two formats differ in the C++ types of equal tables
template <>
struct Tables<v1::Operator> {
  using DType = v1::DType;
  using Quant = v1::QuantParam;
  using Param = v1::Param;
};
template <>
struct Tables<v2::Operator> {
  using DType = v2::DType;
  using Quant = v2::QuantParam;
  using Param = v2::Param;
};

template <class V>
auto write_type(Builder& b, DType t, const mge::Quant& q) {
  const int n = dtype_number(t);
  MGE_ASSERT(n >= 0, "no number for {}", dtype_name(t));
  const auto param = quant_param<typename Tables<V>::Quant>(b, t, q);
  const auto start = b.StartTable();
  b.AddElement<int8_t>(4, static_cast<int8_t>(n), 0);
  if (!param.IsNull()) {
    b.AddElement<uint8_t>(6, 1, 0);
    b.AddOffset(8, param);
  }
  return Off<typename Tables<V>::DType>(b.EndTable(start));
}

flatbuffers::uoffset_t list_of(Builder& b, const ParamField& f, const compat::ParamValue& v) {
  if (f.slot == Slot::Ints) {
    const auto& ints = std::get<Ints>(v);
    return b.CreateVector(std::vector<int32_t>(ints.begin(), ints.end())).o;
  }
  const auto& rows = std::get<compat::Rows>(v);
  std::vector<uint8_t> bytes;
  const bool steps = f.slot == Slot::Steps;
  for (auto& row : rows) {
    for (size_t i = 0; i < (steps ? 1u : 5u); ++i) bytes.push_back(static_cast<uint8_t>(row[i]));
    if (!steps) continue;
    bytes.resize(bytes.size() + 3);
    const auto axis = static_cast<int32_t>(row[1]);
    bytes.insert(bytes.end(), reinterpret_cast<const uint8_t*>(&axis), reinterpret_cast<const uint8_t*>(&axis) + 4);
  }
  const size_t size = steps ? 8 : 5;
  b.StartVector(rows.size() * size / (steps ? 4 : 1), steps ? 4 : 1);
  b.PushBytes(bytes.data(), bytes.size());
  return b.EndVector(rows.size());
}

/// A parameter table; fields at their defaults are left out.
template <class V>
auto write_param(Builder& b, const Param& p) {
  using P = typename Tables<V>::Param;
  if (p.table->name == "DType") {
    const auto& t = std::get<compat::TypeParam>(p.fields.at(0).value);
    return Off<P>(write_type<V>(b, *t.dtype, t.quant).o);
  }
  std::vector<flatbuffers::uoffset_t> lists(p.table->fields.size());
  std::vector<const compat::ParamValue*> values(p.table->fields.size());
  for (auto& f : p.fields) {
    size_t i = 0;
    while (i < values.size() && p.table->fields[i].name != f.name) ++i;
    MGE_ASSERT(i < values.size(), "{} has no field '{}'", p.table->name, f.name);
    values[i] = &f.value;
    const Slot s = p.table->fields[i].slot;
    if (s == Slot::Ints || s == Slot::Steps || s == Slot::Items) lists[i] = list_of(b, p.table->fields[i], f.value);
  }
  const auto start = b.StartTable();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const ParamField& f = p.table->fields[i];
    const auto at = flatbuffers::FieldIndexToOffset(static_cast<flatbuffers::voffset_t>(i));
    switch (f.slot) {
      case Slot::U32:
        b.AddElement<uint32_t>(at, static_cast<uint32_t>(integer(*values[i])), static_cast<uint32_t>(f.value));
        break;
      case Slot::I32:
        b.AddElement<int32_t>(at, static_cast<int32_t>(integer(*values[i])), static_cast<int32_t>(f.value));
        break;
      case Slot::U64:
        b.AddElement<uint64_t>(at, static_cast<uint64_t>(integer(*values[i])),
                               f.value >= 0x1p63 ? UINT64_MAX : static_cast<uint64_t>(f.value));
        break;
      case Slot::F32:
        b.AddElement<float>(at, static_cast<float>(number(*values[i])), static_cast<float>(f.value));
        break;
      case Slot::F64:
        b.AddElement<double>(at, number(*values[i]), f.value);
        break;
      case Slot::Bool:
        b.AddElement<uint8_t>(at, integer(*values[i]) != 0, f.value != 0);
        break;
      case Slot::Type:
        b.AddElement<int8_t>(at, static_cast<int8_t>(dtype_number(*std::get<compat::TypeParam>(*values[i]).dtype)),
                             static_cast<int8_t>(f.value));
        break;
      case Slot::DType:
        break;
      default:
        b.AddOffset(at, flatbuffers::Offset<void>(lists[i]));
    }
  }
  return Off<P>(b.EndTable(start));
}

template <class V>
struct Extra {
  Vec<uint8_t> kinds;
  Vec<Off<typename Tables<V>::Param>> tables;
};
template <class V>
Extra<V> write_extra(Builder& b, const Opr& o) {
  Extra<V> out;
  if (o.params.size() < 2) return out;
  std::vector<uint8_t> kinds;
  std::vector<Off<typename Tables<V>::Param>> tables;
  for (size_t i = 1; i < o.params.size(); ++i) {
    kinds.push_back(static_cast<uint8_t>(o.params[i].table->number));
    tables.push_back(write_param<V>(b, o.params[i]));
  }
  out.kinds = b.CreateVector(kinds);
  out.tables = b.CreateVector(tables);
  return out;
}

std::vector<uint32_t> dims(const Shape& s) { return {s.begin(), s.end()}; }
auto text(Builder& b, const std::string& s) { return s.empty() ? Off<flatbuffers::String>() : b.CreateString(s); }

std::vector<uint8_t> bytes_of(const Builder& b) { return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()}; }

// ---- the second format

Off<v2::CompNode> node2(Builder& b, const std::string& name) {
  return name.empty() ? Off<v2::CompNode>() : v2::CreateCompNode(b, b.CreateString(name));
}

Off<v2::Tensor> tensor2(Builder& b, const Tensor& t) {
  Vec<uint8_t> data;
  if (t.has_data) {
    b.PreAlign(t.data.size(), kAlign);  // ForceVectorAlignment takes at most 32
    data = b.CreateVector(t.data.data(), t.data.size());
  }
  const auto name = text(b, t.name);
  const auto shape = b.CreateVector(dims(t.meta.shape));
  const auto node = node2(b, t.comp_node);
  const auto type = write_type<v2::Operator>(b, t.meta.dtype, t.meta.quant);
  return v2::CreateTensor(b, name, shape, node, type, 1, v2::CreateFormat(b), data);
}

Off<v2::Operator> opr2(Builder& b, const Opr& o) {
  std::vector<Off<v2::Tensor>> tensors;
  for (auto& t : o.tensors) tensors.push_back(tensor2(b, t));
  Off<v2::Param> param;
  if (!o.params.empty()) param = write_param<v2::Operator>(b, o.params[0]);
  const auto extra = write_extra<v2::Operator>(b, o);
  const auto type = b.CreateString(o.type);
  const auto name = text(b, o.name);
  const auto inputs = o.inputs.empty() ? Vec<uint32_t>() : b.CreateVector(o.inputs);
  const auto outputs = b.CreateVector(o.outputs);
  Vec<Off<v2::CompNode>> nodes;
  if (!o.comp_node.empty()) nodes = b.CreateVector(std::vector{node2(b, o.comp_node)});
  Off<v2::DType> dtype;
  if (o.output_dtype.dtype) dtype = write_type<v2::Operator>(b, *o.output_dtype.dtype, o.output_dtype.quant);
  const auto values = tensors.empty() ? Vec<Off<v2::Tensor>>() : b.CreateVector(tensors);
  const uint64_t id = type_id(o.type, o.version == 2);
  const auto kind = static_cast<uint8_t>(o.params.empty() ? 0 : o.params[0].table->number);
  return v2::CreateOperator(b, type, id, name, kind, param, extra.kinds, extra.tables, inputs, outputs, nodes, dtype,
                            values, static_cast<uint32_t>(o.version), o.priority);
}

std::vector<uint8_t> encode2(const File& f) {
  Builder b(1 << 16);
  std::vector<Off<v2::Operator>> oprs;
  for (auto& o : f.oprs) oprs.push_back(opr2(b, o));
  std::vector<Off<v2::MiddleTensor>> middle;
  for (auto& v : f.vars) {
    const auto name = b.CreateString(v.name);
    const auto shape = v.has_shape ? b.CreateVector(dims(v.shape)) : Vec<uint32_t>();
    middle.push_back(v2::CreateMiddleTensor(b, name, shape));
  }
  std::vector<Off<v2::OutputVar>> outputs;
  for (auto& o : f.outputs) outputs.push_back(v2::CreateOutputVar(b, o.var, o.original));
  const auto info = b.CreateString(f.user_info);
  const auto metadata = v2::CreateMetadata(b, f.has_metadata, f.graph_modified, f.optimize_options, info);
  const auto all = b.CreateVector(oprs);
  const auto vars = b.CreateVector(middle);
  const auto out = b.CreateVector(outputs);
  const auto alias = b.CreateVector(std::vector<Off<v2::OutputAlias>>());
  const auto root = v2::CreateModel(b, f.version, 2, all, vars, out, alias, 0, metadata);
  b.FinishSizePrefixed(root, v2::ModelIdentifier());
  return bytes_of(b);
}

// ---- the first format

Off<v1::CompNode> node1(Builder& b, const std::string& name) {
  return name.empty() ? Off<v1::CompNode>() : v1::CreateCompNode(b, b.CreateString(name));
}

Off<v1::Operator> opr1(Builder& b, const Opr& o, const std::vector<VarInfo>& vars, bool versioned,
                       std::vector<uint8_t>* values) {
  std::vector<Off<v1::Tensor>> tensors;
  for (auto& t : o.tensors) {
    const auto name = text(b, t.name);
    const auto shape = b.CreateVector(dims(t.meta.shape));
    const auto node = node1(b, t.comp_node);
    const auto type = write_type<v1::Operator>(b, t.meta.dtype, t.meta.quant);
    tensors.push_back(v1::CreateTensor(b, name, shape, node, type, static_cast<uint32_t>(t.data.size())));
    values->insert(values->end(), t.data.begin(), t.data.end());
  }
  Off<v1::Param> param;
  if (!o.params.empty()) param = write_param<v1::Operator>(b, o.params[0]);
  const auto extra = write_extra<v1::Operator>(b, o);
  const auto name = text(b, o.name);
  const auto inputs = o.inputs.empty() ? Vec<uint32_t>() : b.CreateVector(o.inputs);
  Vec<Off<v1::CompNode>> nodes;
  if (!o.comp_node.empty()) nodes = b.CreateVector(std::vector{node1(b, o.comp_node)});
  std::vector<Off<flatbuffers::String>> names;
  bool named = false;
  for (uint32_t v : o.outputs) named |= !vars[v].name.empty();
  if (named)
    for (uint32_t v : o.outputs) names.push_back(b.CreateString(vars[v].name));
  const auto output_names = named ? b.CreateVector(names) : Vec<Off<flatbuffers::String>>();
  Off<v1::DType> dtype;
  if (o.output_dtype.dtype) dtype = write_type<v1::Operator>(b, *o.output_dtype.dtype, o.output_dtype.quant);
  const auto all = tensors.empty() ? Vec<Off<v1::Tensor>>() : b.CreateVector(tensors);
  const auto kind = static_cast<uint8_t>(o.params.empty() ? 0 : o.params[0].table->number);
  return v1::CreateOperator(b, type_id(o.type, versioned), kind, param, inputs, nodes, output_names, dtype, all,
                            o.priority, {}, extra.kinds, extra.tables, name);
}

std::vector<uint8_t> encode1(const File& f) {
  Builder b(1 << 16);
  std::vector<uint8_t> values;
  std::vector<Off<v1::Operator>> oprs;
  for (auto& o : f.oprs) oprs.push_back(opr1(b, o, f.vars, f.versioned_ids, &values));
  std::vector<v1::OutputVar> outputs;
  for (auto& o : f.outputs) outputs.emplace_back(o.var, o.original);
  const auto info = b.CreateString(f.user_info);
  const auto metadata = v1::CreateMetadata(b, f.has_metadata, f.graph_modified, info, f.optimize_options);
  const auto all = b.CreateVector(oprs);
  const auto out = b.CreateVectorOfStructs(outputs);
  const uint64_t hash = xxh64({values.data(), values.size()}, b.GetSize());
  b.FinishSizePrefixed(v1::CreateGraph(b, f.version, hash ? hash : 1, 0, all, out, metadata), v1::GraphIdentifier());
  const uint64_t skip = values.size();
  const size_t header = f.versioned_ids ? 24 : 16;  // the newer one has a word of features, all off
  std::vector<uint8_t> file(header + skip + b.GetSize());
  std::memcpy(file.data(), f.versioned_ids ? "MGBC" : "MGBS", 4);
  std::memcpy(file.data() + header - 8, &skip, 8);
  if (skip) std::memcpy(file.data() + header, values.data(), skip);
  std::memcpy(file.data() + header + skip, b.GetBufferPointer(), b.GetSize());
  return file;
}

}  // namespace

std::vector<uint8_t> encode(const File& f) {
  size_t bytes = 0;
  for (auto& o : f.oprs)
    for (auto& t : o.tensors) bytes += t.data.size() + kAlign;
  MGE_CHECK(bytes < FLATBUFFERS_MAX_BUFFER_SIZE / 2 || f.format == 1, Value,
            "dump: MegEngine's second format holds at most 1 GB; this model has {} bytes of weights. Use "
            "dump_format=\"FBS\", or the native one.",
            bytes);
  return f.format == 1 ? encode1(f) : encode2(f);
}

std::vector<uint8_t> wrap_cases(const std::vector<uint8_t>& main, std::span<const std::vector<uint8_t>> cases) {
  std::vector<uint8_t> out(12);
  std::memcpy(out.data(), "mgbtest0", 8);
  const auto n = static_cast<uint32_t>(cases.size());
  std::memcpy(out.data() + 8, &n, 4);
  out.insert(out.end(), main.begin(), main.end());
  for (auto& c : cases) out.insert(out.end(), c.begin(), c.end());
  return out;
}

}  // namespace mge::serial::mgb
