#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "serial/container.h"
#include "serial/file.h"
#include "serial/model.h"
#include "serial/model_generated.h"

namespace mge::serial {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using ir::kNone;

constexpr uint8_t kZeros[kAlign] = {};

// A raw section under construction: pieces of memory, each starting at a multiple of 64. Memory named twice is stored
// once.
class Blob {
 public:
  uint64_t add(const void* data, size_t size) {
    if (size == 0) return 0;
    auto [it, fresh] = seen_.try_emplace({data, size}, 0);
    if (!fresh) return it->second;
    if (uint64_t pad = align_up(end_) - end_) section.pieces.push_back({kZeros, static_cast<size_t>(pad)});
    it->second = align_up(end_);
    section.pieces.push_back({static_cast<const uint8_t*>(data), size});
    end_ = it->second + size;
    return it->second;
  }
  explicit Blob(SectionKind kind) : section{kind, kSectionRequired, {}} {}
  SectionData section;

 private:
  std::map<std::pair<const void*, size_t>, uint64_t> seen_;
  uint64_t end_ = 0;
};

int64_t checked(std::string_view what, int64_t v) {
  MGE_CHECK(v >= -kMaxInteger && v <= kMaxInteger, Value, "write_model: {} is {}; files hold numbers up to {}.", what,
            v, kMaxInteger);
  return v;
}

Offset<fb::Type> write_type(FlatBufferBuilder& b, const Meta& m) {
  for (int64_t d : m.shape) checked("a dimension", d);
  auto shape = b.CreateVector(m.shape.begin(), m.shape.rank);
  const auto dtype = static_cast<fb::DType>(m.dtype);
  if (m.quant.per_tensor()) return fb::CreateType(b, dtype, shape, m.quant.scale, m.quant.zero_point);
  const QuantChannels& c = m.quant.channels();
  auto scales = b.CreateVector(c.scale);
  auto zero_points = b.CreateVector(c.zero_point);
  return fb::CreateType(b, dtype, shape, m.quant.scale, m.quant.zero_point, scales, zero_points,
                        static_cast<uint8_t>(c.axis), static_cast<uint8_t>(c.span));
}

Offset<fb::Attr> write_attr(FlatBufferBuilder& b, const NamedAttr& a) {
  auto name = b.CreateSharedString(a.name);
  auto kind = static_cast<fb::AttrKind>(a.value.index());
  Offset<flatbuffers::String> s;
  Offset<flatbuffers::Vector<int64_t>> ints;
  Offset<fb::Type> type;
  int64_t i = 0;
  double f = 0;
  switch (kind) {
    case fb::AttrKind::Bool:
      i = std::get<bool>(a.value);
      break;
    case fb::AttrKind::Int:
      i = checked(a.name, std::get<int64_t>(a.value));
      break;
    case fb::AttrKind::Float:
      f = std::get<double>(a.value);
      break;
    case fb::AttrKind::String:
      s = b.CreateSharedString(std::get<std::string>(a.value));
      break;
    case fb::AttrKind::Ints: {
      const Ints& v = std::get<Ints>(a.value);
      for (int64_t x : v) checked(a.name, x);
      ints = b.CreateVector(v.data(), v.size());
      break;
    }
    case fb::AttrKind::DType:
      i = static_cast<int64_t>(std::get<DType>(a.value));
      break;
    case fb::AttrKind::QType: {
      const QType& t = std::get<QType>(a.value);
      Meta m;
      m.dtype = t.dtype;
      m.quant = t.quant;
      type = write_type(b, m);
      break;
    }
  }
  return fb::CreateAttr(b, name, kind, i, f, s, ints, type);
}

Offset<flatbuffers::Vector<Offset<fb::Attr>>> write_attrs(FlatBufferBuilder& b, const std::vector<NamedAttr>& attrs) {
  std::vector<Offset<fb::Attr>> out;
  for (const NamedAttr& a : attrs) out.push_back(write_attr(b, a));
  return b.CreateVector(out);
}

class GraphWriter {
 public:
  GraphWriter(FlatBufferBuilder& b, const Graph& g, const ModelInfo& info, const WriteOptions& opt, Blob& weights)
      : b_(b), g_(g), info_(info), opt_(opt), weights_(weights) {}

  Offset<fb::Graph> write() {
    std::vector<uint32_t> inputs;
    for (ir::ValueId v : g_.inputs()) inputs.push_back(define(v));
    for (const ir::Var& v : g_.vars()) define(v.in);
    std::vector<fb::Constant> constants = write_constants();
    std::vector<Offset<fb::Node>> nodes;
    for (ir::NodeId n : g_.order()) {
      MGE_CHECK(
          !g_.node(n).op->domain, NotImplemented,
          "dump: {} works with other processes, and a model file runs in one. Leave it out of the traced function.",
          g_.node(n).op->name);
      nodes.push_back(write_node(g_.node(n)));
    }
    std::vector<Offset<fb::Guard>> guards;
    for (const ir::Guard& x : g_.guards()) {
      uint32_t loc_id = loc(x.loc);
      auto want = b_.CreateVector(reinterpret_cast<const uint8_t*>(x.want.data()), x.want.size());
      guards.push_back(fb::CreateGuard(b_, id(x.value), want, loc_id));
    }
    std::vector<Offset<fb::Var>> vars = write_vars();
    std::vector<Offset<fb::Output>> outputs = write_outputs();

    auto name = b_.CreateString(g_.name());
    auto types = b_.CreateVector(types_);
    auto values = b_.CreateVector(values_);
    auto ins = b_.CreateVector(inputs);
    auto vs = b_.CreateVector(vars);
    auto cs = b_.CreateVectorOfStructs(constants);
    auto ops = b_.CreateVector(ops_);
    auto locs = b_.CreateVector(locs_);
    auto ns = b_.CreateVector(nodes);
    auto outs = b_.CreateVector(outputs);
    auto gs = b_.CreateVector(guards);
    auto origins = b_.CreateVector(origins_);
    return fb::CreateGraph(b_, name, types, values, ins, vs, cs, ops, locs, ns, outs, gs, origins,
                           !opt_.locations || g_.is_stripped());
  }

 private:
  uint32_t define(ir::ValueId v) {
    auto id = static_cast<uint32_t>(values_.size());
    ids_[v] = id;
    const ir::Value& value = g_.value(v);
    auto name = value.name.empty() ? Offset<flatbuffers::String>() : b_.CreateString(value.name);
    values_.push_back(fb::CreateValue(b_, name, type(value.meta)));
    return id;
  }

  uint32_t id(ir::ValueId v) const {
    auto it = ids_.find(v);
    MGE_ASSERT(it != ids_.end(), "value %{} of graph {} is used but never defined", v, g_.name());
    return it->second;
  }

  uint32_t type(const Meta& m) {
    std::vector<int64_t> key(m.shape.begin(), m.shape.end());
    key.push_back(static_cast<int64_t>(m.dtype));
    key.push_back(static_cast<int64_t>(hash_double(m.quant.scale)));
    key.push_back(m.quant.zero_point);
    key.push_back(m.quant.list);
    auto [it, fresh] = type_ids_.try_emplace(std::move(key), static_cast<uint32_t>(types_.size()));
    if (fresh) types_.push_back(write_type(b_, m));
    return it->second;
  }

  uint32_t op(const OpDef& d) {
    auto [it, fresh] = op_ids_.try_emplace(d.name, static_cast<uint32_t>(ops_.size()));
    if (fresh) ops_.push_back(fb::CreateOp(b_, b_.CreateString(d.name), static_cast<uint32_t>(d.version)));
    return it->second;
  }

  uint32_t loc(ir::LocId l) {
    if (locs_.empty()) locs_.push_back(fb::CreateLoc(b_));
    ir::Loc x = g_.location(l);
    if (!opt_.locations) x = {{}, 0, {}, {}, x.scope};
    if (!opt_.scopes) x.scope.clear();
    if (x == ir::Loc{}) return 0;
    auto [it, fresh] = loc_ids_.try_emplace(l, static_cast<uint32_t>(locs_.size()));
    if (fresh) {
      auto file = b_.CreateSharedString(x.file), function = b_.CreateSharedString(x.function);
      auto note = b_.CreateSharedString(x.note), scope = b_.CreateSharedString(x.scope);
      locs_.push_back(fb::CreateLoc(b_, file, x.line, function, note, scope));
    }
    return it->second;
  }

  std::vector<fb::Constant> write_constants() {
    std::vector<fb::Constant> out;
    for (const ir::Constant& c : g_.constants()) {
      if (c.value == kNone) continue;
      const ir::Value& v = g_.value(c.value);
      MGE_CHECK(c.storage, Value,
                "write_model: constant '{}' {} has no data, as in a graph read from text that leaves it out.", v.name,
                v.meta.str());
      size_t size = v.meta.bytes();
      uint32_t file_id = define(c.value);
      out.emplace_back(file_id, weights_.add(c.data(), size), size);
    }
    return out;
  }

  Offset<fb::Node> write_node(const ir::Node& n) {
    std::vector<uint32_t> in, out;
    for (ir::ValueId v : n.inputs) in.push_back(id(v));
    for (ir::ValueId v : n.outputs) out.push_back(define(v));
    auto attrs = write_attrs(b_, n.attrs ? n.attrs->values() : std::vector<NamedAttr>{});
    uint32_t op_id = op(*n.op), loc_id = loc(n.loc);
    auto ins = b_.CreateVector(in), outs = b_.CreateVector(out);
    std::vector<Offset<fb::SizeUse>> sizes;
    for (const ir::SizeUse& s : n.sizes) {
      auto attr = b_.CreateSharedString(n.op->schema.defaults[static_cast<size_t>(s.field)].name);
      sizes.push_back(fb::CreateSizeUse(b_, attr, s.element, id(s.value)));
    }
    auto ss = b_.CreateVector(sizes);
    std::vector<uint32_t> origins;
    for (int32_t o : n.origins) origins.push_back(origin(o));
    auto os = origins.empty() ? Offset<flatbuffers::Vector<uint32_t>>() : b_.CreateVector(origins);
    return fb::CreateNode(b_, op_id, attrs, ins, outs, loc_id, ss, os);
  }

  uint32_t origin(int32_t o) {
    auto [it, fresh] = origin_ids_.try_emplace(o, static_cast<uint32_t>(origins_.size()));
    if (fresh) {
      const ir::Origin& x = g_.origin(o);
      auto name = b_.CreateSharedString(x.op), call = b_.CreateSharedString(x.call);
      origins_.push_back(fb::CreateOrigin(b_, name, call, loc(x.loc)));
    }
    return it->second;
  }

  std::vector<Offset<fb::Var>> write_vars() {
    std::map<std::string_view, const TensorData*> given;
    for (const TensorData& t : info_.var_values) {
      MGE_CHECK(g_.find_var(t.name) != kNone, Value,
                "write_model: a value is given for var '{}', which graph {} does not have.", t.name, g_.name());
      given[t.name] = &t;
    }
    std::vector<Offset<fb::Var>> out;
    for (const ir::Var& v : g_.vars()) {
      const ir::Value& value = g_.value(v.in);
      auto it = given.find(value.name);
      const TensorData* t = it == given.end() ? nullptr : it->second;
      MGE_CHECK(!t || t->meta.same_type(value.meta), Value, "write_model: var '{}' is {} but its value is {}.",
                value.name, value.meta.str(), t->meta.str());
      size_t size = t ? value.meta.bytes() : 0;
      uint64_t offset = t ? weights_.add(t->data(), size) : 0;
      int64_t commit = v.out == kNone ? -1 : id(v.out);
      out.push_back(fb::CreateVar(b_, id(v.in), commit, t != nullptr, offset, size));
    }
    return out;
  }

  std::vector<Offset<fb::Output>> write_outputs() {
    std::vector<Offset<fb::Output>> out;
    std::set<std::string_view> names;
    for (const ir::Output& o : g_.outputs()) {
      MGE_CHECK(names.insert(o.name).second, Value,
                "write_model: two outputs are called '{}'. Name them with output_names.", o.name);
      auto name = b_.CreateString(o.name);
      out.push_back(fb::CreateOutput(b_, name, id(o.value)));
    }
    return out;
  }

  FlatBufferBuilder& b_;
  const Graph& g_;
  const ModelInfo& info_;
  const WriteOptions& opt_;
  Blob& weights_;
  std::unordered_map<ir::ValueId, uint32_t> ids_;
  std::map<std::vector<int64_t>, uint32_t> type_ids_;
  std::map<std::string, uint32_t> op_ids_;
  std::map<ir::LocId, uint32_t> loc_ids_;
  std::map<int32_t, uint32_t> origin_ids_;
  std::vector<Offset<fb::Type>> types_;
  std::vector<Offset<fb::Value>> values_;
  std::vector<Offset<fb::Op>> ops_;
  std::vector<Offset<fb::Loc>> locs_;
  std::vector<Offset<fb::Origin>> origins_;
};

std::vector<Offset<fb::TensorRef>> write_tensors(FlatBufferBuilder& b, const std::vector<TensorData>& tensors,
                                                 Blob& data) {
  std::vector<Offset<fb::TensorRef>> out;
  for (const TensorData& t : tensors) {
    MGE_CHECK(t.storage, Value, "write_model: tensor '{}' of a test case has no data.", t.name);
    auto name = b.CreateString(t.name);
    auto type = write_type(b, t.meta);
    size_t size = t.meta.bytes();
    out.push_back(fb::CreateTensorRef(b, name, type, data.add(t.data(), size), size));
  }
  return out;
}

Bytes bytes_of(const FlatBufferBuilder& b) { return {b.GetBufferPointer(), b.GetSize()}; }

void write_to(Sink& sink, const Graph& g, const ModelInfo& info, const WriteOptions& opt) {
  Blob weights(SectionKind::Weights), test_data(SectionKind::TestData);
  test_data.section.flags = 0;
  FlatBufferBuilder model(4096), tests(256), pre(256);
  auto graph = GraphWriter(model, g, info, opt, weights).write();
  std::vector<Offset<fb::KeyValue>> metadata;
  for (auto& [key, value] : info.metadata)
    metadata.push_back(fb::CreateKeyValue(model, model.CreateString(key), model.CreateString(value)));
  auto producer = model.CreateString(info.producer);
  auto meta = model.CreateVector(metadata);
  model.Finish(fb::CreateModel(model, producer, meta, graph));

  std::vector<SectionData> sections;
  sections.push_back({SectionKind::Graph, kSectionRequired, {bytes_of(model)}});
  if (!info.preprocess.empty()) {
    std::vector<Offset<fb::PreprocessStep>> steps;
    for (const PreprocessStep& s : info.preprocess) {
      auto input = pre.CreateString(s.input), op = pre.CreateString(s.op);
      auto attrs = write_attrs(pre, s.attrs);
      steps.push_back(fb::CreatePreprocessStep(pre, input, op, attrs));
    }
    pre.Finish(fb::CreatePreprocess(pre, pre.CreateVector(steps)));
    sections.push_back({SectionKind::Preprocess, kSectionRequired, {bytes_of(pre)}});
  }
  if (!info.tests.empty()) {
    std::vector<Offset<fb::TestCase>> cases;
    for (const TestCase& t : info.tests) {
      auto name = tests.CreateString(t.name);
      auto in = tests.CreateVector(write_tensors(tests, t.inputs, test_data));
      auto out = tests.CreateVector(write_tensors(tests, t.outputs, test_data));
      cases.push_back(fb::CreateTestCase(tests, name, in, out, t.max_error));
    }
    tests.Finish(fb::CreateTests(tests, tests.CreateVector(cases)));
    sections.push_back({SectionKind::Tests, 0, {bytes_of(tests)}});
  }
  sections.push_back(std::move(weights.section));
  if (!info.tests.empty()) sections.push_back(std::move(test_data.section));
  write_container(sections, sink);
}

class VectorSink final : public Sink {
 public:
  void write(Bytes b) override { bytes.insert(bytes.end(), b.begin(), b.end()); }
  std::vector<uint8_t> bytes;
};

}  // namespace

std::vector<uint8_t> write_model(const Graph& g, const ModelInfo& info, const WriteOptions& opt) {
  VectorSink sink;
  write_to(sink, g, info, opt);
  return std::move(sink.bytes);
}

void write_model_file(const std::string& path, const Graph& g, const ModelInfo& info, const WriteOptions& opt) {
  FileSink file(path);
  write_to(file, g, info, opt);
  file.commit();
}

}  // namespace mge::serial
