// Writing a recording, or an edited graph, as a model file.
#include "model.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cctype>
#include <map>
#include <set>

#include "common.h"
#include "eager/trace.h"
#include "megengine/version.h"
#include "original.h"
#include "pass/cse.h"
#include "pass/dce.h"
#include "pass/own_generators.h"
#include "serial/mgb/write.h"
#include "serial/model.h"
#include "serial/names.h"
#include "serial/xxh64.h"

namespace nb = nanobind;

namespace mge::py {

ir::Graph recording_graph(nb::handle recording, bool as_constants, std::vector<std::string> args,
                          std::vector<std::string> results);

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Every value gets a name, every output its own: the one asked for, or else that of its value.
void name_graph(ir::Graph& g, const std::vector<std::string>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ir::Output& o = g.outputs()[i];
    if (!outputs[i].empty() && g.value(o.value).kind == ir::ValueKind::Result) g.set_name(o.value, outputs[i]);
  }
  serial::name_values(g);
  std::set<std::string> taken(outputs.begin(), outputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& of = g.value(g.outputs()[i].value).name;
    std::string name = outputs[i].empty() ? of : outputs[i];
    for (int k = 1; outputs[i].empty() && !taken.insert(name).second; ++k) name = of + "[" + std::to_string(k) + "]";
    g.set_output_name(i, std::move(name));
  }
}

// Names that the file is not to keep.
void drop_names(ir::Graph& g, int keep_var_name, bool keep_param_name) {
  for (auto& c : g.constants())
    if (c.value != ir::kNone && keep_var_name < 1 && !keep_param_name) g.set_name(c.value, {});
  if (keep_var_name >= 2) return;
  for (ir::NodeId n : g.order())
    for (ir::ValueId v : g.node(n).outputs) g.set_name(v, {});
  for (size_t i = 0; i < g.outputs().size() && keep_var_name < 1; ++i) g.set_output_name(i, format("unnamed{}", i));
}

serial::TensorData tensor_data(const std::string& name, nb::handle value) {
  MGE_CHECK(is_tensor(value.ptr()), Type, "dump: a test case is made of Tensors; got {}.",
            Py_TYPE(value.ptr())->tp_name);
  Tensor& t = *tensor_of(value.ptr());
  Meta m = t.meta();
  Buffer b = make_contiguous(m, read_buffer(t));
  return {name, m, b.storage, static_cast<size_t>(b.layout.offset) * dtype_size(m.dtype)};
}

std::vector<serial::TensorData> tensors_of(nb::dict named) {
  std::vector<serial::TensorData> out;
  for (auto [name, value] : named) out.push_back(tensor_data(nb::cast<std::string>(name), value));
  return out;
}

// The original's name of a dtype: Float32, QuantizedS8.
std::string dtype_type(DType t) {
  static const std::map<DType, const char*> kQuantised{{DType::QU8, "Quantized8Asymm"}, {DType::QI8, "QuantizedS8"},
                                                       {DType::QI16, "QuantizedS16"},   {DType::QI32, "QuantizedS32"},
                                                       {DType::QU4, "Quantized4Asymm"}, {DType::QI4, "QuantizedS4"},
                                                       {DType::BF16, "BFloat16"}};
  if (auto it = kQuantised.find(t); it != kQuantised.end()) return it->second;
  std::string s(dtype_name(t));
  s[0] = static_cast<char>(toupper(static_cast<unsigned char>(s[0])));
  return s;
}

/// What the graph is made of, as the original counts and calls it.
nb::dict describe(const ir::Graph& g) {
  nb::list inputs, outputs, params;
  std::set<std::string> types, modes, dtypes;
  size_t weights = 0, oprs = g.inputs().size();
  for (ir::ValueId v : g.inputs()) {
    inputs.append(g.value(v).name);
    types.insert("Host2DeviceCopy");
    dtypes.insert(dtype_type(g.meta(v).dtype));
  }
  for (auto& o : g.outputs()) outputs.append(o.name);
  for (auto& c : g.constants()) {
    if (c.value == ir::kNone) continue;
    ++oprs;
    weights += g.meta(c.value).bytes();
    params.append(g.value(c.value).name);
    types.insert("ImmutableTensor");
    dtypes.insert(dtype_type(g.meta(c.value).dtype));
  }
  for (ir::NodeId n : g.order()) {
    const ir::Node& node = g.node(n);
    ++oprs;
    for (auto& type : serial::opr_types(g, n)) {
      const bool mode = type.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
      if (mode) modes.insert(type);
      types.insert(mode ? "Elemwise" : type);
    }
    for (ir::ValueId v : node.outputs) dtypes.insert(dtype_type(g.meta(v).dtype));
  }
  auto list = [](const std::set<std::string>& s) {
    nb::list out;
    for (auto& x : s) out.append(x);
    return out;
  };
  nb::dict d;
  d["nr_opr"] = oprs;
  d["weight_bytes"] = weights;
  d["inputs"] = inputs;
  d["outputs"] = outputs;
  d["params"] = params;
  d["opr_types"] = list(types);
  d["elemwise_modes"] = list(modes);
  d["dtypes"] = list(dtypes);
  return d;
}

nb::bytes write(const ModelDump& d, int keep_var_name, bool keep_param_name, bool lines, bool scopes) {
  ir::Graph g = d.g.clone();
  drop_names(g, keep_var_name, keep_param_name);
  std::vector<uint8_t> bytes = serial::write_model(g, d.info, {.locations = lines, .scopes = scopes});
  return nb::bytes(bytes.data(), bytes.size());
}

// In the original's format; what is in it as the original says it.
nb::tuple write_original(const ModelDump& d, int version, int keep_var_name, bool keep_opr_name, bool keep_param_name,
                         bool keep_opr_priority, bool metadata, nb::bytes user_info, uint64_t options) {
  serial::mgb::WriteOptions opt;
  opt.older = version == 814;
  opt.version = opt.older ? 1 : version;
  opt.keep_var_name = keep_var_name;
  opt.keep_op_name = keep_opr_name;
  opt.keep_param_name = keep_param_name;
  opt.keep_opr_priority = keep_opr_priority;
  opt.metadata = metadata;
  opt.user_info = std::string(user_info.c_str(), user_info.size());
  opt.optimize_options = options & pass::kMegEngineOptionBits;
  serial::mgb::WriteReport report;
  std::vector<uint8_t> bytes = serial::mgb::write(d.g, d.info, opt, &report);
  nb::dict about = describe(d.g);
  about["nr_opr"] = report.n_ops;
  about["weight_bytes"] = report.tensor_value_bytes;
  return nb::make_tuple(nb::bytes(bytes.data(), bytes.size()), about);
}

}  // namespace

ModelDump make_model_dump(ir::Graph g, const std::vector<std::string>& output_names, const DumpOptions& opt) {
  const std::vector<pass::GeneratorVar> generators = pass::own_generators(g);
  pass::dce(g);  // what no output needs was never part of the function
  if (opt.options && opt.change) {
    auto inference = pass::InferenceOptions::from_word(*opt.options);
    inference.rewrites = pass::parse_rewrites(opt.rewrites);
    pass::optimize_for_inference(g, pipeline_options(1, {}, inference));
  }
  if (opt.change) pass::cse(g);
  name_graph(g, output_names);
  ModelDump d{std::move(g), {}};
  d.info.producer = "megengine " MGE_VERSION_STRING;
  d.info.metadata = opt.metadata;
  for (auto& v : generators)
    d.info.var_values.push_back(
        {v.name, d.g.meta(d.g.vars()[static_cast<size_t>(d.g.find_var(v.name))].in), v.start.storage, v.start.offset});
  return d;
}

void bind_model(nb::module_& m) {
  nb::class_<ModelDump>(m, "ModelDump")
      .def(
          "__init__",
          [](ModelDump* self, nb::handle recording, std::vector<std::string> args,
             const std::vector<std::string>& results, bool change, std::optional<uint64_t> options,
             std::vector<std::string> rewrites, Pairs metadata) {
            std::vector<std::string> any(results.size(), "?");
            ir::Graph g = recording_graph(recording, true, std::move(args), std::move(any));
            new (self) ModelDump(
                make_model_dump(std::move(g), results, {change, options, std::move(rewrites), std::move(metadata)}));
          },
          nb::arg("recording"), nb::arg("arg_names"), nb::arg("output_names"), nb::arg("change"),
          nb::arg("options").none(), nb::arg("rewrites"), nb::arg("metadata"))
      .def("drop_unused_inputs", [](ModelDump& d) { return d.g.drop_unused_inputs(); })
      .def("describe", [](const ModelDump& d) { return describe(d.g); })
      .def(
          "add_case",
          [](ModelDump& d, const std::string& name, nb::dict inputs, nb::dict outputs, double max_error) {
            d.info.tests.push_back({name, tensors_of(inputs), tensors_of(outputs), max_error});
          },
          nb::arg("name"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("max_error"))
      .def("write_original", write_original, nb::arg("version"), nb::arg("keep_var_name"), nb::arg("keep_opr_name"),
           nb::arg("keep_param_name"), nb::arg("keep_opr_priority"), nb::arg("metadata"), nb::arg("user_info"),
           nb::arg("options"))
      .def("write", write, nb::arg("keep_var_name") = 1, nb::arg("keep_param_name") = false, nb::arg("lines") = true,
           nb::arg("scopes") = true);
  m.def("content_hash", [](nb::bytes file) {
    return serial::xxh64({reinterpret_cast<const uint8_t*>(file.c_str()), file.size()});
  });
  m.def("model_io", [](nb::bytes file) {
    serial::LoadedModel model =
        serial::read_model({reinterpret_cast<const uint8_t*>(file.c_str()), file.size()}, "model", read_options());
    auto entry = [](const std::string& name, const Meta& meta) {
      return nb::make_tuple(name, std::string(dtype_name(meta.dtype)), nb::steal(shape_tuple(meta.shape)));
    };
    nb::list inputs, outputs;
    const ir::Graph& g = model.graph;
    for (auto v : g.inputs()) inputs.append(entry(g.value(v).name, g.meta(v)));
    for (auto& o : g.outputs()) outputs.append(entry(o.name, g.meta(o.value)));
    return nb::make_tuple(inputs, outputs);
  });
}

}  // namespace mge::py
