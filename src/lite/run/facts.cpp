#include "lite/run/facts.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "lite/convert.h"
#include "lite/network_impl.h"
#include "lite/run/json.h"
#include "pass/options.h"
#include "serial/container.h"
#include "serial/file.h"
#include "serial/packed.h"

namespace lite {
namespace {

using mge::serial::SectionKind;

const char* section_name(uint32_t kind) {
  switch (static_cast<SectionKind>(kind)) {
    case SectionKind::Graph:
      return "graph";
    case SectionKind::Weights:
      return "weights";
    case SectionKind::Tests:
      return "tests";
    case SectionKind::TestData:
      return "test data";
    case SectionKind::Preprocess:
      return "preprocess";
    case SectionKind::PackedWeights:
      return "packed weights";
    case SectionKind::Kernels:
      return "kernels";
    case SectionKind::Plan:
      return "plan";
    default:
      return "other";
  }
}

std::string size_text(size_t bytes) {
  if (bytes < 10000) return mge::format("{} bytes", bytes);
  return bytes < 10000000 ? mge::format("{:.1f} kB", static_cast<double>(bytes) / 1e3)
                          : mge::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

void read_container(const std::string& path, ModelFacts* f) {
  const mge::serial::File file = mge::serial::open_file(path);
  f->bytes = file.bytes.size();
  if (mge::serial::is_original_graph(file.bytes)) {
    f->verified = "its structure; the format has no checksums";
    return;
  }
  const bool native = file.bytes.size() > sizeof mge::serial::kMagic &&
                      std::equal(std::begin(mge::serial::kMagic), std::end(mge::serial::kMagic), file.bytes.begin());
  if (!native) {
    f->verified = "its structure, after it was decrypted or unpacked";
    if (mge::serial::is_packed(file.bytes)) {
      const mge::serial::PackedModel p = mge::serial::unpack(file.bytes, path);
      f->packing =
          mge::format("'{}': model {} {}, info {} {}, cache {}", p.name, size_text(p.model.size()), p.model_decryption,
                      size_text(p.info.size()), p.info_decryption, size_text(p.algo_policy.size()));
    }
    return;
  }
  f->verified = "every byte, by checksums";
  for (auto& s : mge::serial::open_container(mge::serial::split_models(file.bytes)[0], path))
    f->sections.push_back({section_name(s.kind), static_cast<size_t>(s.size)});
}

void read_graph(const mge::serial::LoadedModel& m, ModelFacts* f) {
  const mge::Graph& g = m.graph;
  for (auto n : g.order()) {
    const mge::ir::Node& node = g.node(n);
    ModelFacts::Ops& ops = f->ops[node.op->name];
    ++ops.count;
    for (auto v : node.outputs) ops.dtypes.emplace(mge::dtype_name(g.meta(v).dtype));
    f->with_line += g.location_of(n).line > 0;
  }
  f->nodes = g.n_nodes();
  f->vars = g.vars().size();
  for (auto& c : g.constants()) f->weights += c.value != mge::ir::kNone;
}

void read_info(const mge::serial::LoadedModel& m, ModelFacts* f) {
  f->producer = m.info.producer;
  f->weight_bytes = m.weight_bytes;
  f->models = m.n_models;
  f->mapped = m.mapped;
  f->metadata = m.info.metadata;
  f->format = mge::format("native, version {}", m.format_version);
  for (auto& t : m.info.tests) f->cases.push_back({t.name, t.inputs.size(), t.outputs.size(), t.max_error});
  for (auto& [key, value] : m.info.metadata) {
    if (key == "format") f->format = "MegEngine's " + value;
    uint64_t word = 0;
    if (key == "optimize_options" && std::from_chars(value.data(), value.data() + value.size(), word).ec == std::errc())
      f->options = mge::pass::inference_keywords(mge::pass::InferenceOptions::from_word(word));
  }
}

ModelFacts::Value value_of(const IoSlot& s) {
  const Layout l = s.tensor->get_layout();
  return {s.io.name, dtype_text(l.data_type), {l.shapes, l.shapes + l.ndim}};
}

std::string shape_text(const std::vector<size_t>& shape) {
  std::string s;
  for (size_t d : shape) s += (s.empty() ? "" : ",") + std::to_string(d);
  return "[" + s + "]";
}

std::string joined(const auto& list, const char* between = ", ") {
  std::string s;
  for (auto& x : list) s += (s.empty() ? "" : between) + std::string(x);
  return s;
}

std::string lines_text(const ModelFacts& f) {
  if (f.with_line == 0) return "stripped, or never there";
  return mge::format("kept: {} of {} ops know theirs", f.with_line, f.nodes);
}

}  // namespace

ModelFacts gather(const std::string& path, const Config& config) {
  ModelFacts f;
  f.file = path;
  read_container(path, &f);
  Network net(config);
  net.load_model(path);
  Network::Impl& impl = NetworkAccess::impl(net);
  read_info(*impl.model, &f);
  read_graph(*impl.model, &f);
  for (const IoSlot& s : impl.inputs) f.inputs.push_back(value_of(s));
  for (const IoSlot& s : impl.outputs) f.outputs.push_back(value_of(s));
  f.extra_info = net.get_model_extra_info();
  f.sizes_vary = impl.engine->sizes_vary();
  const auto programs = impl.engine->programs();
  f.programs = programs.size();
  for (auto& p : programs) f.plan = p->report();
  return f;
}

std::string ModelFacts::text() const {
  std::string s;
  auto row = [&](std::string_view key, std::string_view value) { s += mge::format("{:<12}{}\n", key, value); };
  row("file", mge::format("{}, {}{}", file, size_text(bytes), models > 1 ? mge::format(", {} models", models) : ""));
  row("format", format);
  if (!packing.empty()) row("packed", packing);
  row("producer", producer.empty() ? "not said" : producer);
  row("verified", verified);
  for (const Section& x : sections) row("", mge::format("{}: {}", x.name, size_text(x.bytes)));
  row("weights", mge::format("{} in {} constants{}", size_text(weight_bytes), weights, mapped ? ", mapped" : ""));
  row("lines", lines_text(*this));
  for (const Value& v : inputs) row("input", mge::format("{} {}{}", v.name, v.dtype, shape_text(v.shape)));
  for (const Value& v : outputs)
    row("output", mge::format("{} {}{}{}", v.name, v.dtype, shape_text(v.shape), sizes_vary ? " when recorded" : ""));
  if (vars) row("state", mge::format("{} variables that runs change", vars));
  row("ops", mge::format("{} of {} kinds", nodes, ops.size()));
  for (auto& [name, o] : ops) row("", mge::format("{:>5} {:<24} {}", o.count, name, joined(o.dtypes)));
  row("options", options.empty() ? "none" : joined(options));
  for (auto& [key, value] : metadata)
    row("metadata", mge::format("{} = {}", key, value.size() > 60 ? value.substr(0, 60) + "..." : value));
  if (cases.empty()) row("tests", "none");
  for (const Case& c : cases)
    row("test", mge::format("{}: {} inputs, {} outputs, {}", c.name, c.inputs, c.outputs,
                            c.max_error > 0 ? mge::format("error up to {:g}", c.max_error) : "the same bits"));
  if (programs == 0)
    row("memory", "sizes depend on values: planned in the run");
  else
    row("memory",
        mge::format("{} for intermediates ({} without sharing, {} at least), {} outputs, {} largest workspace",
                    size_text(plan.arena_bytes), size_text(plan.sum_bytes), size_text(plan.lower_bound),
                    size_text(plan.output_bytes), size_text(plan.workspace_bytes)));
  if (programs) row("program", mge::format("{} kernel calls, {} views", plan.instrs, plan.views));
  return s;
}

namespace {

std::string list_json(const auto& texts) {
  JsonList l;
  for (auto& t : texts) l.text(t);
  return l.str();
}

std::string values_json(const std::vector<ModelFacts::Value>& values) {
  JsonList l;
  for (auto& v : values) {
    JsonWriter w;
    JsonList shape;
    for (size_t d : v.shape) shape.number(static_cast<double>(d));
    w.member("name", v.name);
    w.member("dtype", v.dtype);
    w.raw("shape", shape.str());
    l.add(w.str());
  }
  return l.str();
}

std::string numbers_json(std::initializer_list<std::pair<const char*, size_t>> numbers) {
  JsonWriter w;
  for (auto& [key, n] : numbers) w.number(key, static_cast<double>(n));
  return w.str();
}

}  // namespace

std::string ModelFacts::json() const {
  JsonWriter w;
  w.member("file", file);
  w.number("bytes", static_cast<double>(bytes));
  w.member("format", format);
  w.member("packed", packing);
  w.member("producer", producer);
  w.member("verified", verified);
  w.number("models", static_cast<double>(models));
  JsonWriter parts, kinds, meta;
  for (const Section& x : sections) parts.number(x.name, static_cast<double>(x.bytes));
  w.raw("sections", parts.str());
  w.raw("weights", numbers_json({{"bytes", weight_bytes}, {"count", weights}}));
  w.flag("mapped", mapped);
  w.raw("lines", numbers_json({{"kept", with_line}, {"ops", nodes}}));
  w.raw("inputs", values_json(inputs));
  w.raw("outputs", values_json(outputs));
  w.number("variables", static_cast<double>(vars));
  for (auto& [name, o] : ops) {
    JsonWriter kind;
    kind.number("count", static_cast<double>(o.count));
    kind.raw("dtypes", list_json(o.dtypes));
    kinds.raw(name, kind.str());
  }
  w.raw("ops", kinds.str());
  w.raw("options", list_json(options));
  for (auto& [key, value] : metadata) meta.member(key, value);
  w.raw("metadata", meta.str());
  w.member("extra_info", extra_info);
  JsonList tests;
  for (const Case& c : cases) {
    JsonWriter test;
    test.member("name", c.name);
    test.number("inputs", static_cast<double>(c.inputs));
    test.number("outputs", static_cast<double>(c.outputs));
    test.number("max_error", c.max_error);
    tests.add(test.str());
  }
  w.raw("tests", tests.str());
  w.flag("sizes_depend_on_values", sizes_vary);
  w.raw("memory", programs ? numbers_json({{"arena_bytes", plan.arena_bytes},
                                           {"lower_bound", plan.lower_bound},
                                           {"without_sharing", plan.sum_bytes},
                                           {"output_bytes", plan.output_bytes},
                                           {"workspace_bytes", plan.workspace_bytes},
                                           {"kernel_calls", static_cast<size_t>(plan.instrs)},
                                           {"views", static_cast<size_t>(plan.views)}})
                           : "null");
  return w.str();
}

}  // namespace lite
