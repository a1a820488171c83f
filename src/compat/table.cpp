#include <algorithm>
#include <atomic>
#include <charconv>

#include "compat/op_class.h"

namespace mge::compat {
namespace {

// "ConvolutionV2@1 Convolution@2"
std::vector<FileType> file_types(std::string_view text) {
  std::vector<FileType> out;
  while (!text.empty()) {
    std::string_view one = text.substr(0, text.find(' '));
    size_t at = one.find('@');
    MGE_ASSERT(at != std::string_view::npos, "file type '{}' needs a version", one);
    int version = 0;
    std::from_chars(one.data() + at + 1, one.data() + one.size(), version);
    out.push_back({one.substr(0, at), version});
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return out;
}

const std::vector<OpClass>& table() {
  static const std::vector<OpClass> all = [] {
    Table t;
    for (auto* family : {add_elemwise, add_math, add_convolution, add_deformable, add_pooling, add_normalization,
                         add_shapes, add_indexing, add_selection, add_making, add_vision, add_colours, add_random,
                         add_recurrent, add_training, add_quantisation, add_absent})
      family(t);
    return std::move(t.classes);
  }();
  return all;
}

}  // namespace

void Table::row(std::string_view name, std::vector<Field> fields, Arity n, std::string_view files, Effect effect,
                decltype(OpClass::make) make, decltype(OpClass::rule) rule) {
  classes.push_back({name, std::move(fields), n.min, n.max, effect, {}, true, false, file_types(files), make, rule});
}

std::shared_ptr<const void> OpClass::build(std::span<const NamedParam> given) const {
  std::vector<ParamValue> values;
  for (auto& f : fields) values.push_back(f.value);
  for (auto& g : given) {
    size_t i = 0;
    while (i < fields.size() && fields[i].name != g.name) ++i;
    MGE_CHECK(i < fields.size(), Type, "{}: has no parameter '{}'.", name, g.name);
    values[i] = g.value;
  }
  return build_in_order(values);
}

std::shared_ptr<const void> OpClass::build_in_order(std::span<const ParamValue> values) const {
  MGE_ASSERT(values.size() == fields.size(), "{}: {} values for {} parameters", name, values.size(), fields.size());
  std::vector<ParamValue> fitted;
  for (size_t i = 0; i < fields.size(); ++i) fitted.push_back(detail::fit(name, fields[i], values[i]));
  return make(fitted);
}

std::span<const OpClass> op_classes() { return table(); }

const OpClass* find(std::string_view name) {
  for (auto& c : table())
    if (c.name == name) return &c;
  return nullptr;
}

const OpClass& get(std::string_view name) {
  if (const OpClass* c = find(name)) return *c;
  std::string known;
  for (auto& c : table()) known += (known.empty() ? "" : ", ") + std::string(c.name);
  fail(ErrorKind::Value, "compat: there is no op class '{}'. Known: {}.", name, known);
}

const OpClass* find_file_type(std::string_view name, int version) {
  for (auto& c : table())
    for (auto& f : c.files)
      if (f.name == name && f.version == version) return &c;
  return nullptr;
}

namespace {
std::atomic<bool>* run_flags() {
  static auto* flags = new std::vector<std::atomic<bool>>(table().size());
  return flags->data();
}
}  // namespace

std::vector<std::string_view> classes_run() {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < table().size(); ++i)
    if (run_flags()[i].load(std::memory_order_relaxed)) out.push_back(table()[i].name);
  return out;
}

std::vector<Val> run(Emitter& em, const OpClass& c, const void* params, std::span<const Val> in) {
  run_flags()[&c - table().data()].store(true, std::memory_order_relaxed);
  MGE_CHECK(c.rule, NotImplemented, "apply: {} is not there: {}.", c.name, c.absent);
  const int n = std::max(static_cast<int>(in.size()) - (c.effect == Effect::Generator), 0);
  if (n < c.min_in || (c.max_in >= 0 && n > c.max_in)) {
    std::string want = c.max_in < 0           ? format("at least {}", c.min_in)
                       : c.min_in == c.max_in ? format("{}", c.min_in)
                                              : format("{} to {}", c.min_in, c.max_in);
    fail(ErrorKind::Value, "{}: needs {} inputs; got {}.", c.name, want, n);
  }
  std::vector<Val> out;
  c.rule(em, params, in, out);
  return out;
}

}  // namespace mge::compat
