#include "lite/run/needs.h"

#include <cctype>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/features.h"
#include "compat/op_class.h"
#include "lite/convert.h"
#include "lite/network_impl.h"
#include "op/elementwise/fused.h"
#include "op/opdef.h"
#include "serial/model.h"

namespace lite {
namespace {

void run_case(Network& net, const mge::serial::TestCase* test) {
  if (test) {
    for (const mge::serial::TensorData& t : test->inputs) {
      auto x = net.get_io_tensor(t.name, LITE_INPUT);
      x->set_layout(to_lite(t.meta, "test input '" + t.name + "'"));
      if (t.meta.bytes()) std::memcpy(x->get_memory_ptr(), t.data(), t.meta.bytes());
    }
  } else {
    for (const std::string& name : net.get_all_input_name()) {
      auto x = net.get_io_tensor(name, LITE_INPUT);
      if (const size_t bytes = x->get_tensor_total_size_in_byte()) std::memset(x->get_memory_ptr(), 0, bytes);
    }
  }
  net.forward();
  net.wait();
}

// Ops that programs run, alone, in a region or as what follows a product; the others were folded when the model was
// loaded.
void add_run(const mge::Graph& g, std::set<std::string, std::less<>>* out) {
  for (auto n : g.order()) {
    const mge::ir::Node& x = g.node(n);
    out->insert(x.op->name);
    if (auto* fused = mge::fused_region(x.attrs.get())) {
      for (const mge::FusedStep& step : fused->steps) out->insert(step.op->name);
    } else if (x.attrs) {
      for (const mge::NamedAttr& a : x.attrs->values())  // act="silu", steps="bias;gelu"
        if (auto* text = std::get_if<std::string>(&a.value)) {
          std::string word;
          for (const char c : *text + ";") {
            if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
              word += c;
            } else {
              out->insert(std::exchange(word, {}));
            }
          }
        }
    }
  }
}

void add_dtypes(const mge::Graph& g, std::set<std::string_view>* out) {
  for (auto n : g.order())
    for (auto v : g.node(n).outputs) out->insert(mge::dtype_name(g.meta(v).dtype));
  for (auto v : g.inputs()) out->insert(mge::dtype_name(g.meta(v).dtype));
}

}  // namespace

std::string needs_of(std::span<const std::string> paths, const Config& config) {
  std::set<std::string_view> ops, dtypes;
  std::set<std::string, std::less<>> run;
  std::string names;
  mge::note_all_features(true);
  for (const std::string& path : paths) {
    Network net(config);
    net.load_model(path);
    const auto model = NetworkAccess::impl(net).model;
    add_dtypes(model->graph, &dtypes);
    for (auto n : model->graph.order()) ops.insert(model->graph.node(n).op->name);
    for (const auto& test : model->info.tests) run_case(net, &test);
    if (model->info.tests.empty()) run_case(net, nullptr);
    const auto programs = NetworkAccess::impl(net).engine->latest();
    for (auto& p : programs) add_run(p->graph(), &run);
    names += (names.empty() ? "" : ", ") + std::filesystem::path(path).filename().string();
  }
  for (const mge::OpDef* op : mge::OpRegistry::global().asked_for()) ops.insert(op->name);
  std::string out = "only\nmade " + (names.empty() ? "no ops" : "the ops of " + names + " (tools/trim)") + "\n";
  for (std::string_view name : mge::noted_features()) out += mge::format("feature {}\n", name);
  for (std::string_view op : ops) out += mge::format("op {}\n", op);
  // Their reference kernels give the same bits.
  for (std::string_view op : ops)
    if (mge::OpRegistry::global().registered(op)->scalar && !run.contains(op)) out += mge::format("plain {}\n", op);
#if MGE_ORIGINAL_FILES
  for (std::string_view name : mge::compat::classes_run()) out += mge::format("class {}\n", name);
#endif
  dtypes.insert("float32");
  for (std::string_view t : dtypes)
    if (mge::DType d; mge::find_dtype(t, &d) && d <= mge::DType::C64) out += mge::format("dtype {}\n", t);
  return out;
}

}  // namespace lite
