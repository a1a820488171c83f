#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/features.h"
#include "ir/verify.h"
#include "serial/container.h"
#include "serial/file.h"
#include "serial/model.h"
#include "serial/model_generated.h"

namespace mge::serial {
namespace {

using flatbuffers::Offset;
using flatbuffers::Vector;
using ir::kNone;

static_assert(static_cast<int>(fb::DType::MAX) == kDTypeCount - 1);
static_assert(static_cast<int>(fb::DType::I64) == static_cast<int>(DType::I64));
static_assert(static_cast<int>(fb::DType::F32) == static_cast<int>(DType::F32));
static_assert(static_cast<int>(fb::DType::QU8) == static_cast<int>(DType::QU8));
static_assert(static_cast<int>(fb::DType::IB4) == static_cast<int>(DType::IB4));

// Names of inputs and vars are looked up one by one; a hostile file with a million of them would take hours.
constexpr size_t kMaxNames = 1 << 14;

std::string text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }
template <class T>
size_t count(const Vector<T>* v) {
  return v ? v->size() : 0;
}

// FlatBuffers verifies where a vector's length lies, not its elements of 8 bytes.
template <class T>
bool misaligned(const Vector<T>* v) {
  return v && v->size() > 0 && reinterpret_cast<uintptr_t>(v->Data()) % 8 != 0;
}

/// Where the raw bytes of a section live while tensors refer to them.
struct Raw {
  RefPtr<Storage> storage;
  size_t size = 0;
};

class Reader {
 public:
  Reader(std::string_view who, const ReadOptions& opt) : who_(who), opt_(opt) {}

  void read_graph(const fb::Graph& f, const Raw& weights, LoadedModel* out) {
    weights_ = &weights;
    f_ = &f;
    read_types(f);
    ids_.assign(count(f.values()), kNone);
    if (count(f.inputs()) + count(f.vars()) > kMaxNames)
      broken("{} inputs and {} vars; at most {} together are read", count(f.inputs()), count(f.vars()), kMaxNames);
    Graph g(text(f.name()));
    read_ops(f);
    read_locs(f, g);
    for (size_t i = 0; i < count(f.inputs()); ++i) {
      uint32_t v = f.inputs()->Get(i);
      define(v, g.add_input(io_name(value_name(v), "input"), value_type(v)));
    }
    for (size_t i = 0; i < count(f.vars()); ++i) {
      uint32_t v = f.vars()->Get(i)->value();
      define(v, g.add_var(io_name(value_name(v), "var"), value_type(v)));
    }
    if (misaligned(f.constants())) broken("the list of constants lies at an odd address");
    for (size_t i = 0; i < count(f.constants()); ++i) {
      const fb::Constant& c = *f.constants()->Get(i);
      Meta m = value_type(c.value());
      check_data("constant", value_name(c.value()), m, c.offset(), c.size(), weights.size);
      define(c.value(), g.add_constant(m, weights.storage, static_cast<size_t>(c.offset()), value_name(c.value())));
    }
    for (size_t i = 0; i < count(f.nodes()); ++i) read_node(*f.nodes()->Get(i), i, g);
    for (size_t i = 0; i < ids_.size(); ++i)
      if (ids_[i] == kNone) broken("value {} is never defined", i);
    for (size_t i = 0; i < count(f.guards()); ++i) read_guard(*f.guards()->Get(i), g);
    for (size_t i = 0; i < count(f.vars()); ++i) read_var(*f.vars()->Get(i), i, g, &out->info);
    read_outputs(f, g);
    ir::verify(g, {.infer = false});  // add_node has just inferred every meta
    out->graph = std::move(g);
  }

  std::vector<TestCase> read_tests(const fb::Tests& f, const Raw& data) {
    std::vector<TestCase> out;
    for (size_t i = 0; i < count(f.cases()); ++i) {
      const fb::TestCase& c = *f.cases()->Get(i);
      if (!(c.max_error() >= 0)) broken("test case {} has maximum error {}", i, c.max_error());
      out.push_back({text(c.name()), read_tensors(c.inputs(), data), read_tensors(c.outputs(), data), c.max_error()});
    }
    return out;
  }

  std::vector<NamedAttr> read_attrs(const Vector<Offset<fb::Attr>>* attrs) {
    std::vector<NamedAttr> out;
    for (size_t i = 0; i < count(attrs); ++i) {
      const fb::Attr& a = *attrs->Get(i);
      std::string name = text(a.name());
      for (const NamedAttr& seen : out)
        if (seen.name == name) broken("attribute '{}' is given twice", name);
      out.push_back({std::move(name), attr_value(a)});
    }
    return out;
  }

  template <class... A>
  [[noreturn]] void broken(const char* f, const A&... a) const {
    MGE_FAIL_ENV("{}: damaged: {}.", who_, format(f, a...));
  }

 private:
  void read_types(const fb::Graph& f) {
    for (size_t i = 0; i < count(f.types()); ++i) types_.push_back(meta(*f.types()->Get(i)));
  }

  Meta meta(const fb::Type& t) {
    Meta m;
    if (t.dtype() > fb::DType::MAX) broken("dtype {}", static_cast<int>(t.dtype()));
    m.dtype = static_cast<DType>(t.dtype());
    if (misaligned(t.shape())) broken("a shape at an odd address");
    if (count(t.shape()) > kMaxRank) broken("a shape of rank {}", count(t.shape()));
    for (size_t i = 0; i < count(t.shape()); ++i) {
      int64_t d = t.shape()->Get(i);
      if (d < 0 || d > kMaxInteger) broken("a dimension of {}", d);
      m.shape.push_back(d);
    }
    check_shape("model", m.shape);
    if (!std::isfinite(t.scale())) broken("quantisation scale {}", t.scale());
    if (is_quant(m.dtype)) {
      require("quantised", "a model with quantised types");
      note("quantised");
    }
    m.quant = {t.scale(), t.zero_point(), 0};
    if (has("quantised") && t.scales()) m.quant = channels(t);
    if (m.quant.scale != 0 && !is_quant(m.dtype)) broken("a scale of {}", dtype_name(m.dtype));
    return m;
  }

  Quant channels(const fb::Type& t) {
    std::vector<float> scales;
    std::vector<int32_t> zeros;
    for (size_t i = 0; i < count(t.scales()); ++i) scales.push_back(t.scales()->Get(static_cast<uint32_t>(i)));
    for (size_t i = 0; i < count(t.zero_points()); ++i) zeros.push_back(t.zero_points()->Get(static_cast<uint32_t>(i)));
    try {
      return Quant::per_channel(std::move(scales), std::move(zeros), t.axis(), t.span());
    } catch (const Error& e) {
      broken("{}", e.text());
    }
  }

  AttrValue attr_value(const fb::Attr& a) {
    switch (a.kind()) {
      case fb::AttrKind::Bool:
        return a.i() != 0;
      case fb::AttrKind::Int:
        return plausible(a, a.i());
      case fb::AttrKind::Float:
        return a.f();
      case fb::AttrKind::String:
        return text(a.s());
      case fb::AttrKind::Ints: {
        if (misaligned(a.ints())) broken("attribute '{}' lies at an odd address", text(a.name()));
        Ints v;
        for (size_t i = 0; i < count(a.ints()); ++i) v.push_back(plausible(a, a.ints()->Get(i)));
        return v;
      }
      case fb::AttrKind::DType:
        if (a.i() < 0 || a.i() >= kDTypeCount) broken("attribute '{}' is dtype {}", text(a.name()), a.i());
        return static_cast<DType>(a.i());
      case fb::AttrKind::QType:
        if (!a.type()) broken("attribute '{}' has no type", text(a.name()));
        return meta(*a.type()).qtype();
    }
    broken("attribute '{}' is of kind {}", text(a.name()), static_cast<int>(a.kind()));
  }

  int64_t plausible(const fb::Attr& a, int64_t v) {
    if (v < -kMaxInteger || v > kMaxInteger) broken("attribute '{}' is {}", text(a.name()), v);
    return v;
  }

  // All that is missing in one message: whoever ships the file fixes it in one go.
  void read_ops(const fb::Graph& f) {
    std::string unknown, newer;
    for (size_t i = 0; i < count(f.ops()); ++i) {
      const fb::Op& o = *f.ops()->Get(i);
      std::string name = text(o.name());
      const OpDef* d = OpRegistry::global().find(name);
      if (!d)
        unknown += (unknown.empty() ? "" : ", ") + (name.empty() ? "''" : name);
      else if (o.version() > static_cast<uint32_t>(d->version))
        newer += format("{}{} {} (here {})", newer.empty() ? "" : ", ", name, o.version(), d->version);
      ops_.push_back({d, static_cast<int>(o.version())});
    }
    if (!unknown.empty())
      MGE_FAIL_ENV(
          "{}: needs ops that this build does not have: {}. It has {}. Use a build that has them, or dump without "
          "them.",
          who_, unknown, OpRegistry::build_has());
    if (!newer.empty())
      MGE_FAIL_ENV("{}: needs newer versions of ops than this build has: {}. Update this runtime.", who_, newer);
  }

  void read_locs(const fb::Graph& f, Graph& g) {
    locs_.push_back(ir::kNoLoc);
    for (size_t i = 1; i < count(f.locs()); ++i) {
      const fb::Loc& l = *f.locs()->Get(i);
      locs_.push_back(g.loc(text(l.file()), l.line(), text(l.function()), text(l.note()), text(l.scope())));
    }
    g.set_stripped(f.stripped());
    for (size_t i = 0; i < count(f.origins()); ++i) {
      const fb::Origin& o = *f.origins()->Get(i);
      if (o.loc() >= locs_.size()) broken("an op of the source has location {} of {}", o.loc(), locs_.size());
      origins_.push_back({text(o.op()), text(o.call()), locs_[o.loc()]});
    }
  }

  const fb::Value& value(uint32_t v) {
    if (v >= ids_.size()) broken("value {} of {}", v, ids_.size());
    return *f_->values()->Get(v);
  }
  std::string value_name(uint32_t v) { return text(value(v).name()); }
  const Meta& value_type(uint32_t v) {
    uint32_t t = value(v).type();
    if (t >= types_.size()) broken("type {} of {}", t, types_.size());
    return types_[t];
  }
  void define(uint32_t v, ir::ValueId id) {
    if (ids_[v] != kNone) broken("value {} is defined twice", v);
    ids_[v] = id;
  }
  ir::ValueId use(uint32_t v) {
    value(v);
    if (ids_[v] == kNone) broken("value {} is used before it is defined", v);
    return ids_[v];
  }
  std::string io_name(std::string name, const char* what) {
    if (name.empty() || name.find('\0') != std::string::npos) broken("an {} has no proper name", what);
    return name;
  }

  void check_data(const char* what, const std::string& name, const Meta& m, uint64_t offset, uint64_t size,
                  uint64_t limit) {
    if (size != m.bytes()) broken("{} '{}' {} has {} bytes of data", what, name, m.str(), size);
    if (offset % kAlign || offset > limit || size > limit - offset)
      broken("{} '{}' lies at {} with {} bytes in a section of {}", what, name, offset, size, limit);
  }

  std::vector<NamedAttr> upgrade(const OpDef& op, int version, std::vector<NamedAttr> attrs) {
    if (version < 1) broken("op {} has version {}", op.name, version);
    for (int v = version; v < op.version; ++v) {
      auto rule = std::find_if(opt_.upgrades.begin(), opt_.upgrades.end(),
                               [&](const Upgrade& u) { return u.from == v && op.name == u.op; });
      if (rule == opt_.upgrades.end())
        MGE_FAIL_ENV(
            "{}: op {} has version {} in this file, and this build cannot bring it from {} to {}. Dump the model "
            "again.",
            who_, op.name, version, v, v + 1);
      if (rule->fn) rule->fn(attrs);
    }
    return attrs;
  }

  void read_node(const fb::Node& n, size_t index, Graph& g) {
    if (n.op() >= ops_.size()) broken("node {} uses op {} of {}", index, n.op(), ops_.size());
    if (n.loc() >= locs_.size()) broken("node {} has location {} of {}", index, n.loc(), locs_.size());
    const OpDef& op = *ops_[n.op()].def;
    ir::LocId loc = locs_[n.loc()];
    try {
      std::vector<NamedAttr> given = upgrade(op, ops_[n.op()].version, read_attrs(n.attrs()));
      check_attr_kinds(op, given);
      Attrs attrs = op.has_attrs ? op.schema.build(op.name, given) : nullptr;
      SmallVec<ir::ValueId, 6> in;
      for (size_t i = 0; i < count(n.inputs()); ++i) in.push_back(use(n.inputs()->Get(i)));
      const size_t results = op.n_out(attrs.get());
      if (count(n.outputs()) != results) broken("{} has {} results, not {}", op.name, results, count(n.outputs()));
      ir::NodeId id = g.add_node(op, std::move(attrs), {in.data(), in.size()}, loc);
      for (size_t i = 0; i < count(n.sizes()); ++i) read_size(*n.sizes()->Get(i), id, g);
      for (size_t i = 0; i < count(n.origins()); ++i) {
        const uint32_t o = n.origins()->Get(i);
        if (o >= origins_.size()) broken("node {} stands for op {} of {}", index, o, origins_.size());
        g.add_origin(id, origins_[o]);
      }
      for (size_t i = 0; i < results; ++i) {
        uint32_t v = n.outputs()->Get(i);
        const Meta &stored = value_type(v), &inferred = g.meta(g.node(id).outputs[i]);
        if (!stored.same_type(inferred)) broken("{} gives {}, the file says {}", op.name, inferred.str(), stored.str());
        define(v, g.node(id).outputs[i]);
        g.set_name(ids_[v], value_name(v));
      }
    } catch (Error& e) {
      e.set_location(g.location(loc).str());
      throw;
    }
  }

  void read_size(const fb::SizeUse& s, ir::NodeId n, Graph& g) {
    const OpDef& op = *g.node(n).op;
    std::string name = text(s.attr());
    int field = kNone;
    for (size_t i = 0; i < op.schema.defaults.size(); ++i)
      if (op.schema.defaults[i].name == name) field = static_cast<int>(i);
    if (field == kNone) broken("{} has no attribute '{}'", op.name, name);
    const AttrValue& like = op.schema.defaults[static_cast<size_t>(field)].value;
    if (!std::holds_alternative<Ints>(like) && !std::holds_alternative<int64_t>(like))
      broken("attribute '{}' of {} is no size", name, op.name);
    ir::ValueId v = use(s.value());
    const Meta& m = g.meta(v);
    if (!(is_int(m.dtype) || m.dtype == DType::Bool) || m.shape.numel() > 64 || s.element() < SizeOperand::kWhole)
      broken("attribute '{}' of {} is a size of {}", name, op.name, m.str());
    g.add_size(n, {field, s.element(), v});
  }

  void read_guard(const fb::Guard& x, Graph& g) {
    ir::ValueId v = use(x.value());
    if (x.loc() >= locs_.size()) broken("a guard has location {} of {}", x.loc(), locs_.size());
    if (count(x.want()) != g.meta(v).bytes() || count(x.want()) > 1024)
      broken("a guard of {} bytes on {}", count(x.want()), g.meta(v).str());
    const auto* p = reinterpret_cast<const char*>(count(x.want()) ? x.want()->Data() : nullptr);
    g.add_guard({v, std::vector<char>(p, p + count(x.want())), locs_[x.loc()]});
  }

  // build() would coerce an int to a bool, as Python calls need; a file has no excuse.
  void check_attr_kinds(const OpDef& op, const std::vector<NamedAttr>& given) {
    if (!op.has_attrs && !given.empty()) broken("{} takes no attributes but has '{}'", op.name, given[0].name);
    for (const NamedAttr& a : given)
      for (const NamedAttr& d : op.schema.defaults)
        if (a.name == d.name && a.value.index() != d.value.index())
          broken("attribute '{}' of {} is of the wrong kind: {}", a.name, op.name, print_attr(a.value));
  }

  void read_var(const fb::Var& v, size_t index, Graph& g, ModelInfo* info) {
    if (v.commit() >= 0) {
      if (v.commit() > UINT32_MAX) broken("value {}", v.commit());
      g.commit(index, use(static_cast<uint32_t>(v.commit())));
    }
    if (!v.has_data()) return;
    const ir::Value& value = g.value(g.vars()[index].in);
    check_data("var", value.name, value.meta, v.offset(), v.size(), weights_->size);
    info->var_values.push_back({value.name, value.meta, weights_->storage, static_cast<size_t>(v.offset())});
  }

  void read_outputs(const fb::Graph& f, Graph& g) {
    std::set<std::string> names;
    for (size_t i = 0; i < count(f.outputs()); ++i) {
      const fb::Output& o = *f.outputs()->Get(i);
      std::string name = io_name(text(o.name()), "output");
      if (!names.insert(name).second) broken("two outputs are called '{}'", name);
      g.add_output(std::move(name), use(o.value()));
    }
  }

  std::vector<TensorData> read_tensors(const Vector<Offset<fb::TensorRef>>* v, const Raw& data) {
    std::vector<TensorData> out;
    for (size_t i = 0; i < count(v); ++i) {
      const fb::TensorRef& t = *v->Get(i);
      std::string name = io_name(text(t.name()), "tensor");
      Meta m = meta(*t.type());
      check_data("tensor", name, m, t.offset(), t.size(), data.size);
      out.push_back({std::move(name), m, data.storage, static_cast<size_t>(t.offset())});
    }
    return out;
  }

  struct OpUse {
    const OpDef* def;
    int version;
  };
  std::string_view who_;
  const ReadOptions& opt_;
  const fb::Graph* f_ = nullptr;
  const Raw* weights_ = nullptr;
  std::vector<Meta> types_;
  std::vector<OpUse> ops_;
  std::vector<ir::LocId> locs_;
  std::vector<ir::Origin> origins_;
  std::vector<ir::ValueId> ids_;
};

template <class T>
const T& verified_root(Bytes bytes, std::string_view who, const char* what) {
  bool small = bytes.size() < FLATBUFFERS_MAX_BUFFER_SIZE;
  flatbuffers::Verifier v(bytes.data(), small ? bytes.size() : 0, /*max_depth=*/16,
                          /*max_tables=*/static_cast<flatbuffers::uoffset_t>(bytes.size() / 4 + 16));
  if (!v.VerifyBuffer<T>(nullptr)) MGE_FAIL_ENV("{}: damaged: section {} is not well formed.", who, what);
  return *flatbuffers::GetRoot<T>(bytes.data());
}

// FlatBuffers reads words in place, so the section must be aligned in memory; it always is in a mapped file.
class AlignedBytes {
 public:
  explicit AlignedBytes(Bytes b) : bytes(b) {
    if (reinterpret_cast<uintptr_t>(b.data()) % 8 == 0) return;
    copy_.resize(b.size() / 8 + 1);
    std::memcpy(copy_.data(), b.data(), b.size());
    bytes = {reinterpret_cast<const uint8_t*>(copy_.data()), b.size()};
  }
  Bytes bytes;

 private:
  std::vector<uint64_t> copy_;
};

// With an owner the bytes stay where they are, otherwise they are copied.
Raw hold(Bytes bytes, const std::shared_ptr<const void>& owner) {
  Raw raw{nullptr, bytes.size()};
  if (owner) {
    raw.storage = wrap_storage(const_cast<uint8_t*>(bytes.data()), bytes.size(), false, [owner] {});
  } else {
    raw.storage = allocate_storage({}, bytes.size());
    raw.storage->writable = false;
    if (!bytes.empty()) std::memcpy(raw.storage->ptr, bytes.data(), bytes.size());
  }
  return raw;
}

LoadedModel read_one(Bytes file, const std::shared_ptr<const void>& owner, const std::string& who,
                     const ReadOptions& opt) {
  if (opt.foreign && is_original_graph(file)) return opt.foreign(file, owner, who, opt);
  MGE_CHECK(!opt.compressed, Value,
            "{}: has_compression is for models in the original's formats; this file's weights are as they are.", who);
  std::vector<Section> sections = open_container(file, who);
  auto find = [&](SectionKind kind) -> std::optional<Bytes> {
    for (const Section& s : sections)
      if (s.kind == static_cast<uint32_t>(kind)) return file.subspan(s.offset, s.size);
    return std::nullopt;
  };
  for (const Section& s : sections)
    if (s.kind > static_cast<uint32_t>(SectionKind::Preprocess) && (s.flags & kSectionRequired))
      MGE_FAIL_ENV(
          "{}: has a section of kind {} that this build does not know and must not ignore. Update this runtime.", who,
          s.kind);
  std::optional<Bytes> graph = find(SectionKind::Graph), weights = find(SectionKind::Weights);
  if (!graph || !weights) MGE_FAIL_ENV("{}: damaged: the {} section is missing.", who, graph ? "weight" : "graph");

  LoadedModel out;
  out.format_version = kFormatVersion;
  out.file_bytes = file.size();
  out.weight_bytes = weights->size();
  Reader reader(who, opt);
  AlignedBytes graph_bytes(*graph);
  const auto& model = verified_root<fb::Model>(graph_bytes.bytes, who, "graph");
  out.info.producer = text(model.producer());
  for (size_t i = 0; i < count(model.metadata()); ++i) {
    const fb::KeyValue& kv = *model.metadata()->Get(i);
    out.info.metadata.emplace_back(text(kv.key()), text(kv.value()));
  }
  reader.read_graph(*model.graph(), hold(*weights, owner), &out);

  if (auto bytes = find(SectionKind::Tests)) {
    AlignedBytes aligned(*bytes);
    const auto& tests = verified_root<fb::Tests>(aligned.bytes, who, "tests");
    out.info.tests = reader.read_tests(tests, hold(find(SectionKind::TestData).value_or(Bytes{}), owner));
  }
  if (auto bytes = find(SectionKind::Preprocess)) {
    AlignedBytes aligned(*bytes);
    const auto& pre = verified_root<fb::Preprocess>(aligned.bytes, who, "preprocess");
    for (size_t i = 0; i < count(pre.steps()); ++i) {
      const fb::PreprocessStep& s = *pre.steps()->Get(i);
      out.info.preprocess.push_back({text(s.input()), text(s.op()), reader.read_attrs(s.attrs())});
    }
  }
  return out;
}

// All models are looked through, whichever is asked for: a damaged file is a damaged file.
LoadedModel read_any(Bytes file, const std::shared_ptr<const void>& owner, const std::string& who,
                     const ReadOptions& opt) {
  std::vector<Bytes> models = split_models(file);
  if (opt.index >= models.size())
    MGE_FAIL_ENV("{}: holds {} models; there is none of index {}.", who, models.size(), opt.index);
  for (size_t i = 0; i < models.size(); ++i)
    if (i != opt.index) open_container(models[i], format("{} (model {} of {})", who, i + 1, models.size()));
  Bytes bytes = models[opt.index];
  // Constants are used in place, so they have to be where the first model of a file has them.
  const bool aligned = static_cast<size_t>(bytes.data() - file.data()) % kAlign == 0;
  LoadedModel m = read_one(bytes, aligned ? owner : nullptr, who, opt);
  m.n_models = models.size();
  return m;
}

// Whatever the graph's own checks say about a file is a fault of the file, not of the caller or of us.
template <class F>
LoadedModel blame_file(const std::string& who, F read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::Env || e.kind() == ErrorKind::Memory || e.kind() == ErrorKind::NotImplemented) throw;
    MGE_FAIL_ENV("{}: the graph is not valid: {}", who, e.text());
  } catch (const std::out_of_range&) {
    MGE_FAIL_ENV("{}: damaged: an operator lacks an input or output that it must have.", who);
  }
}

}  // namespace

LoadedModel read_model(Bytes bytes, const std::string& who, const ReadOptions& opt) {
  return blame_file(who, [&] { return read_any(bytes, nullptr, who, opt); });
}

LoadedModel read_model(Bytes bytes, std::shared_ptr<const void> owner, const std::string& who, const ReadOptions& opt) {
  MGE_ASSERT(reinterpret_cast<uintptr_t>(bytes.data()) % kAlign == 0, "{}: bytes to be used in place lie at {}", who,
             static_cast<const void*>(bytes.data()));
  return blame_file(who, [&] { return read_any(bytes, owner, who, opt); });
}

LoadedModel read_model_file(const std::string& path, const ReadOptions& opt) {
  File file = open_file(path);
  LoadedModel m = blame_file(path, [&] { return read_any(file.bytes, file.owner, path, opt); });
  m.mapped = file.mapped;
  return m;
}

}  // namespace mge::serial
