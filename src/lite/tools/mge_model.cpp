// Looks into model files and makes small ones from text.
//   mge_model show net.mge                      what is in it, and the graph as text
//   mge_model make net.txt net.mge [cases]      from graph text (src/ir/text.h), with random test cases from the
//   reference kernels mge_model strip net.mge small.mge           without test cases and source locations
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "ir/text.h"
#include "lite/engine.h"
#include "lite/error.h"
#include "megengine/version.h"
#include "plan/oracle.h"
#include "serial/file.h"
#include "serial/model.h"

namespace {

using namespace mge;
using serial::TensorData;

int usage() {
  std::fprintf(stderr, "usage: mge_model show MODEL | make TEXT MODEL [CASES] | strip MODEL OUT\n");
  return 1;
}

int show(const std::string& path, size_t index = 0) {
  serial::ReadOptions options = lite::read_options();
  options.index = index;
  serial::LoadedModel m = serial::read_model_file(path, options);
  if (m.n_models > 1) std::printf("# model %zu of %zu\n", index + 1, m.n_models);
  std::printf("# format %u, %zu bytes, %zu of them weights\n# producer: %s\n", m.format_version, m.file_bytes,
              m.weight_bytes, m.info.producer.c_str());
  for (auto& [key, value] : m.info.metadata) std::printf("# %s: %s\n", key.c_str(), value.c_str());
  for (auto& s : m.info.preprocess) std::printf("# input %s is pre-processed by %s\n", s.input.c_str(), s.op.c_str());
  for (auto& t : m.info.tests)
    std::printf("# test case '%s': %zu inputs, %zu outputs, error up to %g\n", t.name.c_str(), t.inputs.size(),
                t.outputs.size(), t.max_error);
  std::printf("%s", ir::print(m.graph, {.types = true}).c_str());
  if (index + 1 < m.n_models) return show(path, index + 1);
  return 0;
}

// Floats in (0,1], integers in 0..9.
TensorData random_tensor(const std::string& name, const Meta& m, uint64_t seed) {
  TensorData t{name, m, allocate_storage({}, m.bytes()), 0};
  Philox random{seed};
  for (int64_t i = 0; i < m.shape.numel(); ++i) {
    uint32_t bits = random(static_cast<uint64_t>(i))[0];
    char* at = static_cast<char*>(t.storage->ptr) + i * static_cast<int64_t>(dtype_size(m.dtype));
    float f = philox_uniform(bits);
    int32_t n = static_cast<int32_t>(bits % 10);
    switch (m.dtype) {
      case DType::F32:
        std::memcpy(at, &f, 4);
        break;
      case DType::I32:
        std::memcpy(at, &n, 4);
        break;
      case DType::U8:
      case DType::I8:
        *at = static_cast<char>(n);
        break;
      default:
        fail(ErrorKind::NotImplemented, "make: no random values for {} input '{}'.", dtype_name(m.dtype), name);
    }
  }
  return t;
}

serial::TestCase make_case(const Graph& g, int index) {
  serial::TestCase t;
  t.name = format("random {}", index);
  t.max_error = 1e-5;
  std::vector<Buffer> in;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const ir::Value& v = g.value(g.inputs()[i]);
    t.inputs.push_back(random_tensor(v.name, v.meta, static_cast<uint64_t>(index) * 1000 + i));
    in.push_back({t.inputs.back().storage, Layout::contiguous(v.meta.shape)});
  }
  OracleResult r = interpret(g, in);
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const Meta& m = g.meta(g.outputs()[i].value);
    Buffer b = make_contiguous(m, r.outputs[i]);
    t.outputs.push_back(
        {g.outputs()[i].name, m, b.storage, static_cast<size_t>(b.layout.offset) * dtype_size(m.dtype)});
  }
  return t;
}

int make(const std::string& text_path, const std::string& path, int cases) {
  serial::File file = serial::open_file(text_path);
  Graph g = ir::parse({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  serial::ModelInfo info;
  info.producer = "mge_model " MGE_VERSION_STRING;
  for (int i = 0; i < cases; ++i) info.tests.push_back(make_case(g, i));
  serial::write_model_file(path, g, info);
  return 0;
}

int strip(const std::string& from, const std::string& to) {
  serial::LoadedModel m = serial::read_model_file(from, lite::read_options());
  m.info.tests.clear();
  serial::write_model_file(to, m.graph, m.info, {.locations = false, .scopes = false});
  return 0;
}

int run(int argc, char** argv) {
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "show" && argc == 3) return show(argv[2]);
  if (command == "make" && (argc == 4 || argc == 5)) return make(argv[2], argv[3], argc == 5 ? std::atoi(argv[4]) : 0);
  if (command == "strip" && argc == 4) return strip(argv[2], argv[3]);
  if (!command.empty())
    std::fprintf(stderr, "mge_model: '%s' with %d arguments is not known.\n", command.c_str(), argc - 2);
  return usage();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    std::fprintf(stderr, "mge_model: %s\n", lite::current_error_text().c_str());
    return 1;
  }
}
