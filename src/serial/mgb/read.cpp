#include "serial/mgb/read.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "compat/emit.h"
#include "ir/builder.h"
#include "ir/verify.h"
#include "serial/mgb/blocked.h"
#include "serial/mgb/decode.h"

namespace mge::serial::mgb {
namespace {

using compat::OpClass;
using ir::GraphBuilder;
using ir::ValueId;

constexpr std::string_view kExpect = ":expect";
constexpr size_t kInPlaceFrom = 4096;  // bytes: less than a page is copied, which also aligns it

/// What is no op of a class: where values come from, and marks that say nothing to us.
enum class Role : uint8_t { Input, Value, Values, Alias, Check };
struct Special {
  std::string_view type;
  Role role;
};
constexpr Special kSpecial[] = {
    {"Host2DeviceCopy", Role::Input},
    {"ImmutableTensor", Role::Value},
    {"SharedDeviceTensor", Role::Value},
    {"VolatileSharedDeviceTensor", Role::Value},
    {"SharedDeviceTensorWithFormat", Role::Value},
    {"MultipleDeviceTensorHolder", Role::Values},
    {"MultipleDeviceTensorWithFormatHolder", Role::Values},
    {"VirtualDep", Role::Alias},
    {"MarkDynamicVar", Role::Alias},
    {"MarkNoBroadcastElemwise", Role::Alias},
    {"VirtualGrad", Role::Alias},
    {"PersistentOutputStorage", Role::Alias},
    {"AssertEqual", Role::Check},
};
const Special* special(const Opr& o) {
  for (auto& s : kSpecial)
    if (s.type == o.type) return &s;
  return nullptr;
}

const compat::NamedParam* field(const Opr& o, std::string_view name) {
  for (auto& p : o.params)
    for (auto& f : p.fields)
      if (f.name == name) return &f;
  return nullptr;
}

/// Our 4-bit tensors are dense; rows of the file start at whole bytes.
void copy_value(const Tensor& t, void* to) {
  const int64_t inner = t.meta.shape.rank ? t.meta.shape.back() : 1;
  if (!is_packed(t.meta.dtype) || inner % 2 == 0) {
    if (!t.data.empty()) std::memcpy(to, t.data.data(), t.data.size());
    return;
  }
  auto* out = static_cast<uint8_t*>(to);
  const int64_t n = t.meta.shape.numel(), row = (inner + 1) / 2;
  std::memset(out, 0, t.meta.bytes());
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t byte = t.data[static_cast<size_t>(i / inner * row + i % inner / 2)];
    const int half = i % inner % 2 ? byte >> 4 : byte & 15;
    out[i / 2] |= static_cast<uint8_t>(half << (i % 2 ? 4 : 0));
  }
}

class Translator {
 public:
  Translator(const File& f, Bytes bytes, const std::shared_ptr<const void>& owner, const std::string& who,
             const ReadOptions& opt)
      : f_(f), bytes_(bytes), owner_(owner), who_(who), b_(&g_, {}, opt.evaluate), blocked_(b_), vars_(f.vars.size()) {}

  void run(LoadedModel* out) {
    find_live();
    check_covered();
    // All inputs first: which shapes vary must be known before anything is emitted.
    for (auto& o : f_.oprs) {
      if (!live(o) || !is_input(o)) continue;
      std::string name = input_name(o);  // an error where it is no input
      vars_[o.outputs[0]] = b_.val(g_.add_input(std::move(name), o.tensors[0].meta));
    }
    b_.let_sizes_vary();
    for (auto& o : f_.oprs)
      if (live(o) && !is_input(o)) translate(o, out);
    std::set<std::string> used;
    std::set<uint32_t> given;  // the original lists a value once, however often it is an output
    for (size_t i = 0; i < f_.outputs.size(); ++i) {
      if (!given.insert(f_.outputs[i].var).second) continue;
      std::string name = output_name(i);
      for (int n = 1; !used.insert(name).second; ++n) name = format("{}#{}", output_name(i), n);
      g_.add_output(name, GraphBuilder::id(vars_[f_.outputs[i].var]));
    }
    ir::verify(g_, {.infer = false});
    out->graph = std::move(g_);
  }

  /// Names of inputs, with those that hold what must come out, in the order of test cases.
  std::vector<std::string> case_names() const {
    std::vector<std::string> out;
    for (auto& o : f_.oprs)
      if (is_input(o)) out.push_back(input_name(o));
    std::sort(out.begin(), out.end());
    return out;
  }
  double max_error() const {
    for (auto& o : f_.oprs)
      if (o.type == "AssertEqual")
        if (auto* p = field(o, "maxerr")) return std::get<double>(p->value);
    return 1e-4;
  }

 private:
  static bool is_input(const Opr& o) { return o.type == "Host2DeviceCopy"; }
  bool live(const Opr& o) const { return live_[static_cast<size_t>(&o - f_.oprs.data())]; }

  std::string input_name(const Opr& o) const {
    MGE_CHECK(o.tensors.size() == 1 && o.outputs.size() == 1, Env, "{}: damaged: an input without its tensor.", who_);
    if (!o.tensors[0].name.empty()) return o.tensors[0].name;
    return o.name.empty() ? f_.vars[o.outputs[0]].name : o.name;
  }

  /// Checks stand behind the outputs of a file with test cases; what they compare with is not part of the model.
  void find_live() {
    std::vector<size_t> maker(f_.vars.size());
    for (size_t i = 0; i < f_.oprs.size(); ++i)
      for (uint32_t v : f_.oprs[i].outputs) maker[v] = i;
    live_.assign(f_.oprs.size(), false);
    std::vector<size_t> todo;
    for (auto& o : f_.outputs) todo.push_back(maker[o.var]);
    while (!todo.empty()) {
      const size_t i = todo.back();
      todo.pop_back();
      if (live_[i]) continue;
      live_[i] = true;
      const Opr& o = f_.oprs[i];
      const Special* s = special(o);
      for (size_t k = 0; k < o.inputs.size(); ++k)
        if (!s || s->role == Role::Value || (s->role == Role::Alias && k == 0) || (s->role == Role::Check && k == 1))
          todo.push_back(maker[o.inputs[k]]);
    }
  }

  void check_covered() const {
    std::map<std::string, int> missing;
    for (auto& o : f_.oprs) {
      if (!live(o) || special(o)) continue;
      const OpClass* c = compat::find_file_type(o.type, o.version);
      const std::string name = f_.format == 2 ? format("{}@{}", o.type, o.version) : o.type;
      const bool relayout = o.type == "RelayoutFormatV1";
      if (!c)
        ++missing[name];
      else if (!c->rule && !relayout)
        ++missing[format("{} ({})", name, c->absent)];
      else if (c->effect == compat::Effect::Replace)
        ++missing[format("{} (it changes a parameter)", name)];
      else if (std::string why = Blocked::refuse(o); !why.empty())
        ++missing[format("{} ({})", name, why)];
    }
    if (missing.empty()) return;
    std::string list;
    for (auto& [name, n] : missing) list += format("{}{} x{}", list.empty() ? "" : ", ", name, n);
    fail(ErrorKind::NotImplemented, "{}: has operators that this version cannot run: {}. It has {}.", who_, list,
         OpRegistry::build_has());
  }

  void translate(const Opr& o, LoadedModel* out) {
    const std::string& name = !o.name.empty() || o.outputs.empty() ? o.name : f_.vars[o.outputs[0]].name;
    // A kept name is that of the module, a dot, and the kind of op.
    const size_t dot = o.name.rfind('.');
    b_.set_at({g_.loc(name.empty() ? o.type : name, 0, {}, {},
                      dot == std::string::npos ? std::string_view() : std::string_view(o.name).substr(0, dot)),
               ir::kNone});
    try {
      if (const Special* s = special(o)) {
        if (s->role == Role::Value || s->role == Role::Values)
          constants(o, out);
        else
          for (uint32_t v : o.outputs) vars_[v] = vars_[o.inputs.at(s->role == Role::Check ? 1 : 0)];
      } else {
        emit(o);
      }
    } catch (Error& e) {
      if (!e.located()) e.set_location(format("{} '{}'", o.type, name));
      throw;
    }
    for (uint32_t v : o.outputs) {
      if (!vars_[v] || f_.vars[v].name.empty()) continue;
      const ValueId id = GraphBuilder::id(vars_[v]);
      if (g_.value(id).name.empty() && g_.value(id).kind == ir::ValueKind::Result) g_.set_name(id, f_.vars[v].name);
    }
  }

  void constants(const Opr& o, LoadedModel* out) {
    MGE_CHECK(o.tensors.size() == o.outputs.size(), Env, "{}: damaged: {} of {} values for {} vars.", who_, o.type,
              o.tensors.size(), o.outputs.size());
    for (size_t i = 0; i < o.tensors.size(); ++i) {
      const Tensor& t = o.tensors[i];
      MGE_CHECK(t.has_data, Env, "{}: damaged: {} '{}' has no value.", who_, o.type, t.name);
      const std::string& var = f_.vars[o.outputs[i]].name;
      const std::string& own = !var.empty() ? var : o.name;  // kept with the names of ops alone
      std::string name = !t.name.empty() ? t.name : own.starts_with("const") ? std::string() : own;
      out->weight_bytes += t.data.size();
      MGE_CHECK(t.layout == Layout::Default || t.data.size() == t.meta.bytes(), NotImplemented,
                "{}: weight '{}' {} is stored as an image with gaps between its rows.", who_, t.name, t.meta.str());
      vars_[o.outputs[i]] = b_.val(g_.add_constant(t.meta, value_of(t), 0, std::move(name)));
    }
  }

  RefPtr<Storage> value_of(const Tensor& t) const {
    const auto at = reinterpret_cast<uintptr_t>(t.data.data()), file = reinterpret_cast<uintptr_t>(bytes_.data());
    const bool in_file = at >= file && at < file + bytes_.size();  // and not in a copy that ends with the decoding
    if (owner_ && in_file && t.data.size() >= kInPlaceFrom && t.data.size() == t.meta.bytes() &&
        !is_packed(t.meta.dtype) && at % dtype_size(t.meta.dtype) == 0)
      return wrap_storage(const_cast<uint8_t*>(t.data.data()), t.data.size(), false, [owner = owner_] {});
    RefPtr<Storage> s = allocate_storage({}, std::max<size_t>(t.meta.bytes(), 1));
    copy_value(t, s->ptr);
    return s;
  }

  std::shared_ptr<const void> params(const Opr& o, const OpClass& c) {
    std::vector<compat::NamedParam> given;
    auto has = [&](std::string_view name) {
      return std::any_of(c.fields.begin(), c.fields.end(), [&](auto& f) { return f.name == name; });
    };
    for (size_t i = 0; i < o.params.size(); ++i)
      for (auto& f : o.params[i].fields) {
        if (f.name == "format" && Blocked::is_blocked(o)) continue;
        if (has(f.name)) given.push_back(f);
      }
    if (Blocked::is_blocked(o) && has("format")) given.push_back({"format", int64_t{0}});  // the rule sees plain images
    if (o.output_dtype.dtype && has("dtype")) given.push_back({"dtype", o.output_dtype});
    return c.build(given);
  }

  void emit(const Opr& o) {
    std::vector<Val> in;
    for (uint32_t v : o.inputs) {
      MGE_CHECK(vars_[v], Env, "{}: damaged: {} reads a value that is not there.", who_, o.type);
      in.push_back(vars_[v]);
    }
    if (o.type == "RelayoutFormatV1") {
      vars_[o.outputs.at(0)] = blocked_.relayout(o, in.at(0));
      return;
    }
    const OpClass& c = *compat::find_file_type(o.type, o.version);
    const bool blocks = blocked_.enter(o, in);
    if (c.effect == compat::Effect::Generator) in.push_back(generator(o));
    const std::shared_ptr<const void> p = params(o, c);
    std::vector<Val> results = compat::run(b_, c, p.get(), in);
    if (c.effect == compat::Effect::Generator) {
      const ValueId after = GraphBuilder::id(results.back());
      const ir::Value& before = g_.value(GraphBuilder::id(in.back()));
      if (before.kind == ir::ValueKind::Var) g_.commit(static_cast<size_t>(before.index), after);
      results.pop_back();
    }
    // Where running statistics do not change they are no vars of the file.
    if (c.name == "BatchNorm" && results.size() > o.outputs.size())
      results.erase(results.begin(), results.end() - static_cast<std::ptrdiff_t>(o.outputs.size()));
    MGE_CHECK(results.size() >= o.outputs.size(), Env, "{}: damaged: {} has {} outputs, not {}.", who_, o.type,
              results.size(), o.outputs.size());
    // Graphs of the original have no tensors without axes: a scalar is [1] there.
    for (size_t i = 0; i < o.outputs.size(); ++i)
      if (results[i] && results[i].meta().shape.rank == 0) results[i] = expand_dims(results[i], {0});
    for (size_t i = 0; i < o.outputs.size(); ++i)
      vars_[o.outputs[i]] = blocks ? blocked_.leave(results[i]) : results[i];
  }

  /// Every random operator goes on from its own seed; what draws nothing gets a state all the same.
  Val generator(const Opr& o) {
    auto* mode = field(o, "fwd_mode");
    auto* training = field(o, "training");
    const bool draws = mode ? std::get<int64_t>(mode->value) == 0 : !training || std::get<bool>(training->value);
    uint64_t seed = 0;
    if (auto* s = field(o, "seed")) seed = static_cast<uint64_t>(std::get<int64_t>(s->value));
    const int32_t state[4] = {static_cast<int32_t>(seed), static_cast<int32_t>(seed >> 32), 0, 0};
    Meta m;
    m.dtype = DType::I32;
    m.shape = Shape{4};
    if (!draws) return b_.literal(m, state);
    const std::string name = format("generator{}", n_generators_++);
    TensorValue v{name, m, allocate_storage({}, sizeof state), 0};
    std::memcpy(v.storage->ptr, state, sizeof state);
    states.push_back(std::move(v));
    return b_.val(g_.add_var(name, m));
  }

  std::string output_name(size_t i) const {
    const OutputVar& o = f_.outputs[i];
    if (!o.name.empty()) return o.name;
    for (auto& p : f_.oprs)  // the name of what is compared, without its mark
      if (p.type == "AssertEqual" && !p.outputs.empty() && p.outputs[0] == o.var && p.inputs.size() > 1)
        for (auto& e : f_.oprs)
          if (is_input(e) && e.outputs.at(0) == p.inputs[0])
            if (std::string n = input_name(e); n.ends_with(kExpect)) return n.substr(0, n.size() - kExpect.size());
    if (!f_.vars[o.var].name.empty()) return f_.vars[o.var].name;
    return format("out{}", i);
  }

  using TensorValue = TensorData;
  const File& f_;
  Bytes bytes_;
  std::shared_ptr<const void> owner_;  // of the bytes; null: they go away
  const std::string& who_;
  Graph g_;
  GraphBuilder b_;
  Blocked blocked_;
  std::vector<Val> vars_;
  std::vector<bool> live_;
  int n_generators_ = 0;

 public:
  std::vector<TensorData> states;
};

/// A case is a graph whose outputs are constants.
TestCase read_case(const File& f, const std::vector<std::string>& names, double max_error, const std::string& who,
                   size_t number) {
  TestCase out;
  out.name = format("case {}", number);
  out.max_error = max_error;
  MGE_CHECK(f.outputs.size() == names.size(), Env, "{}: damaged: test case {} has {} values for {} inputs.", who,
            number, f.outputs.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const Tensor* value = nullptr;
    for (auto& o : f.oprs)
      for (size_t k = 0; k < o.outputs.size() && k < o.tensors.size(); ++k)
        if (o.outputs[k] == f.outputs[i].var) value = &o.tensors[k];
    MGE_CHECK(value && value->has_data, Env, "{}: damaged: test case {} has no value for '{}'.", who, number, names[i]);
    TensorData t{names[i], value->meta, allocate_storage({}, std::max<size_t>(value->meta.bytes(), 1)), 0};
    copy_value(*value, t.storage->ptr);
    const bool expected = t.name.ends_with(kExpect);
    if (expected) t.name.resize(t.name.size() - kExpect.size());
    (expected ? out.outputs : out.inputs).push_back(std::move(t));
  }
  return out;
}

}  // namespace

LoadedModel read(std::span<const uint8_t> bytes, const std::shared_ptr<const void>& owner, const std::string& who,
                 const ReadOptions& opt) {
  MGE_ASSERT(opt.evaluate, "mgb::read needs ReadOptions::evaluate");
  const Decoded d = decode(bytes, who, opt.compressed);
  LoadedModel out;
  Translator t(d.main, bytes, owner, who, opt);
  t.run(&out);
  out.info.var_values = std::move(t.states);
  out.info.producer =
      format("megengine {}.{}.{}", d.main.version / 100000, d.main.version / 100 % 1000, d.main.version % 100);
  out.info.metadata.emplace_back("format", d.main.format == 2 ? "FBS_V2" : d.main.versioned_ids ? "FBS" : "FBS 8.14");
  if (std::any_of(d.main.oprs.begin(), d.main.oprs.end(),
                  [](const Opr& o) { return !o.inputs.empty() && !o.name.empty(); }))
    out.info.metadata.emplace_back("keep_opr_name", "1");
  if (d.main.has_metadata) {
    out.info.metadata.emplace_back("graph_modified", d.main.graph_modified ? "1" : "0");
    out.info.metadata.emplace_back("optimized_for_inference", d.main.optimize_options ? "1" : "0");
    out.info.metadata.emplace_back("optimize_options", format("{}", d.main.optimize_options));
    std::string hex;
    for (unsigned char c : d.main.user_info) hex += format("{:02x}", c);
    out.info.metadata.emplace_back("user_info.pickle.hex", hex);
  }
  const std::vector<std::string> names = t.case_names();
  for (size_t i = 0; i < d.cases.size(); ++i)
    out.info.tests.push_back(read_case(d.cases[i], names, t.max_error(), who, i));
  out.format_version = static_cast<uint32_t>(d.main.format);
  out.file_bytes = bytes.size();
  return out;
}

}  // namespace mge::serial::mgb
