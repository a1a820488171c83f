// mge-lite COMMAND MODEL: what a model file holds, and whether it still computes what it was recorded with. `--help`
// has the commands. The exit status is 0 when all is well, 1 when a model differs from its test cases, 2 when a command
// could not be carried out.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "ir/text.h"
#include "lite/convert.h"
#include "lite/crypt/crypt.h"
#include "lite/engine.h"
#include "lite/error.h"
#include "lite/load.h"
#include "lite/network_impl.h"
#include "lite/pack_model.h"
#include "lite/run/facts.h"
#include "lite/run/flags.h"
#include "lite/run/json.h"
#include "lite/run/needs.h"
#include "lite/run/program.h"
#include "lite/run/verify.h"
#include "megengine/version.h"
#include "plan/oracle.h"
#include "serial/file.h"
#include "serial/model.h"

namespace {

using namespace mge;
using lite::FlagDef, lite::FlagKind, lite::Flags;
using serial::TensorData;

constexpr FlagDef kFlags[] = {
    {"json", FlagKind::Bool, "false", "info, verify: as JSON", "Flags"},
    {"threads", FlagKind::Int, "1", "verify: threads of the network", "Flags"},
    {"cryption", FlagKind::Text, "", "how MODEL is, or is to be, encrypted: AES_default, RC4_default ...", "Flags"},
    {"key", FlagKind::Text, "", "its key in hex digits, when it is not the library's", "Flags"},
    {"info", FlagKind::File, "", "pack: the JSON that configures a network", "Flags"},
    {"info_cryption", FlagKind::Text, "", "pack: how that is to be encrypted", "Flags"},
    {"cache", FlagKind::File, "", "pack: choices of kernels, of load_and_run --fast_run_algo_policy", "Flags"},
    {"cases", FlagKind::Int, "0", "make: so many test cases with random inputs", "Flags"},
    {"help", FlagKind::Bool, "false", "this text", "Flags"},
    {"version", FlagKind::Bool, "false", "print the version", "Flags"},
};

std::vector<uint8_t> parse_key(const std::string& hex) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    uint8_t byte = 0;
    const char *begin = hex.data() + i, *end = hex.data() + std::min(hex.size(), i + 2);
    auto r = std::from_chars(begin, end, byte, 16);
    MGE_CHECK(r.ec == std::errc() && r.ptr == begin + 2, Value, "--key takes pairs of hex digits; got '{}'.", hex);
    out.push_back(byte);
  }
  return out;
}

lite::Config config_of(const Flags& f) {
  lite::Config c;
  if (f.given("key")) {
    MGE_CHECK(f.given("cryption"), Value, "--key needs --cryption.");
    lite::update_decryption(f.text("cryption"), {}, parse_key(f.text("key")));
  }
  c.bare_model_cryption_name = f.text("cryption");
  return c;
}

// ---- verify

struct CaseResult {
  std::string json;
  bool ok = true;
};

/// Runs one test case; a line for each output unless they are asked for as JSON.
CaseResult run_case(lite::Network& net, const serial::TestCase& test, bool print) {
  lite::Network::Impl& impl = lite::NetworkAccess::impl(net);
  for (const TensorData& t : test.inputs) {
    auto x = net.get_io_tensor(t.name, LITE_INPUT);
    x->set_layout(lite::to_lite(t.meta, "test input '" + t.name + "'"));
    void* to = x->get_memory_ptr();
    if (t.meta.bytes()) std::memcpy(to, t.data(), t.meta.bytes());
  }
  net.forward();
  net.wait();
  CaseResult result;
  lite::JsonList outputs;
  for (const TensorData& want : test.outputs) {
    const lite::IoSlot& slot = impl.find_io(want.name, LITE_OUTPUT);
    const Meta& m = impl.engine->output_meta(static_cast<size_t>(slot.graph_index));
    const lite::Difference d = lite::compare(m, slot.tensor->get_memory_ptr(), want, test.max_error);
    result.ok &= d.ok;
    lite::JsonWriter w;
    w.member("name", want.name);
    w.flag("ok", d.ok);
    w.number("error", d.types.empty() ? d.worst : INFINITY);
    w.member("text", d.text(test.max_error));
    outputs.add(w.str());
    if (print)
      std::printf("%-4s %s: %s: %s\n", d.ok ? "ok" : "BAD", test.name.c_str(), want.name.c_str(),
                  d.text(test.max_error).c_str());
  }
  lite::JsonWriter w;
  w.member("case", test.name);
  w.flag("ok", result.ok);
  w.raw("outputs", outputs.str());
  result.json = w.str();
  return result;
}

std::string op_json(const lite::OpDifference& at) {
  lite::JsonWriter w;
  w.member("op", at.op);
  w.member("value", at.value);
  w.member("kernel", at.kernel);
  w.member("line", at.location);
  w.member("text", at.text());
  return w.str();
}

int verify(const Flags& f) {
  const std::string& path = f.positional()[1];
  auto net = std::make_shared<lite::Network>(config_of(f));
  lite::Runtime::set_cpu_threads_number(net, static_cast<size_t>(f.integer("threads")));
  net->load_model(path);
  const auto model = lite::NetworkAccess::impl(*net).model;
  MGE_CHECK(!model->info.tests.empty(), Value,
            "{}: has no test cases to verify. trace.dump(input_data=...) and mge-lite make put them there.", path);
  lite::JsonList cases;
  const serial::TestCase* failed = nullptr;
  for (const serial::TestCase& test : model->info.tests) {
    const CaseResult r = run_case(*net, test, !f.on("json"));
    if (!r.ok && !failed) failed = &test;
    cases.add(r.json);
  }
  lite::JsonWriter report;
  report.member("file", path);
  report.flag("pass", !failed);
  report.raw("cases", cases.str());
  std::string verdict = format("PASS: {} test cases", model->info.tests.size());
  if (failed) {
    const lite::OpDifference at = lite::first_different_op(model, *failed);
    verdict = format("FAIL in {}: {}", failed->name, at.text());
    report.raw("first_different_op", op_json(at));
  }
  std::printf("%s\n", f.on("json") ? report.str().c_str() : verdict.c_str());
  return failed ? 1 : 0;
}

int info(const Flags& f) {
  const lite::ModelFacts facts = lite::gather(f.positional()[1], config_of(f));
  std::printf("%s", f.on("json") ? (facts.json() + "\n").c_str() : facts.text().c_str());
  return 0;
}

int needs(const Flags& f) {
  const auto& words = f.positional();
  std::printf("%s", lite::needs_of(std::span(words).subspan(1), config_of(f)).c_str());
  return 0;
}

// ---- show, make, strip

int show(const Flags& f, size_t index = 0) {
  const std::string& path = f.positional()[1];
  serial::ReadOptions options = lite::read_options();
  options.index = index;
  const serial::LoadedModel m =
      index ? serial::read_model_file(path, options) : load_bytes(lite::bytes_of_file(path), config_of(f), {}).model;
  if (m.n_models > 1) std::printf("# model %zu of %zu\n", index + 1, m.n_models);
  std::printf("# format %u, %zu bytes, %zu of them weights\n# producer: %s\n", m.format_version, m.file_bytes,
              m.weight_bytes, m.info.producer.c_str());
  for (auto& [key, value] : m.info.metadata) std::printf("# %s: %s\n", key.c_str(), value.c_str());
  for (auto& s : m.info.preprocess) std::printf("# input %s is pre-processed by %s\n", s.input.c_str(), s.op.c_str());
  for (auto& t : m.info.tests)
    std::printf("# test case '%s': %zu inputs, %zu outputs, error up to %g\n", t.name.c_str(), t.inputs.size(),
                t.outputs.size(), t.max_error);
  std::printf("%s", ir::print(m.graph, {.types = true}).c_str());
  if (index + 1 < m.n_models) return show(f, index + 1);
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
  info.producer = "mge-lite " MGE_VERSION_STRING;
  for (int i = 0; i < cases; ++i) info.tests.push_back(make_case(g, i));
  serial::write_model_file(path, g, info);
  return 0;
}

int strip(const Flags& f) {
  serial::LoadedModel m = load_bytes(lite::bytes_of_file(f.positional()[1]), config_of(f), {}).model;
  m.info.tests.clear();
  serial::write_model_file(f.positional()[2], m.graph, m.info, {.locations = false, .scopes = false});
  return 0;
}

// ---- encrypt, pack

int encrypt(const Flags& f) {
  MGE_CHECK(f.given("cryption"), Value, "encrypt needs --cryption: AES_default, RC4_default, SIMPLE_FAST_RC4_default.");
  config_of(f);  // takes --key
  const serial::File file = serial::open_file(f.positional()[1]);
  const std::vector<uint8_t> bytes = lite::encrypt(f.text("cryption"), file.bytes);
  replace_file(f.positional()[2], {}, bytes.data(), bytes.size());
  return 0;
}

int pack(const Flags& f) {
  config_of(f);
  auto bytes_of = [](const std::string& path, const std::string& method) {
    if (path.empty()) return std::vector<uint8_t>();
    return lite::encrypt(method, serial::open_file(path).bytes);
  };
  auto method = [&](const char* flag) { return f.given(flag) ? f.text(flag) : std::string("NONE"); };
  lite::ModelPacker packer(bytes_of(f.positional()[1], method("cryption")), f.positional()[2],
                           bytes_of(f.text("info"), method("info_cryption")), bytes_of(f.text("cache"), "NONE"));
  packer.set_header(method("cryption"), method("info_cryption"), true);
  packer.pack_model();
  return 0;
}

struct Command {
  const char *name, *arguments, *doc;
  size_t least, most;  // arguments
  int (*run)(const Flags&);
};
constexpr Command kCommands[] = {
    {"info", "MODEL", "what the file holds and needs", 1, 1, info},
    {"verify", "MODEL", "runs its test cases: PASS, or the first op whose output differs, with its line", 1, 1, verify},
    {"needs", "[MODEL ...]", "the ops and dtypes that a runtime for these models has (tools/trim)", 0, SIZE_MAX - 1,
     needs},
    {"show", "MODEL", "the graph as text", 1, 1, [](const Flags& f) { return show(f); }},
    {"make", "TEXT MODEL [CASES]", "a model of graph text (src/ir/text.h)", 2, 3,
     [](const Flags& f) {
       const auto& a = f.positional();
       return make(a[1], a[2], a.size() > 3 ? std::atoi(a[3].c_str()) : static_cast<int>(f.integer("cases")));
     }},
    {"strip", "MODEL OUT", "without test cases and source lines", 2, 2, strip},
    {"encrypt", "MODEL OUT", "the file encrypted by the method of --cryption", 2, 2, encrypt},
    {"pack", "MODEL OUT", "one file of the model and what --info and --cache name", 2, 2, pack},
};

std::string usage() {
  std::string s = "usage: mge-lite COMMAND ... [flags]\n";
  for (const Command& c : kCommands) s += format("  {:<8}{:<20}{}\n", c.name, c.arguments, c.doc);
  return s;
}

int run(int argc, char** argv) {
  Flags f(kFlags);
  f.parse(argc, argv);
  if (f.on("help")) {
    std::printf("%s%sExit status: 0, 1 when a model differs from its test cases, 2 when something could not be done.\n",
                usage().c_str(), f.help().c_str());
    return 0;
  }
  if (f.on("version")) {
    std::printf("%s\n", MGE_VERSION_STRING);
    return 0;
  }
  const auto& words = f.positional();
  MGE_CHECK(!words.empty(), Value, "a command is needed.\n{}", usage());
  std::vector<std::string> names;
  for (const Command& c : kCommands) {
    names.emplace_back(c.name);
    if (words[0] != c.name) continue;
    MGE_CHECK(words.size() > c.least && words.size() <= c.most + 1, Value, "{} takes {}; got {} arguments.\n{}", c.name,
              c.arguments, words.size() - 1, usage());
    return c.run(f);
  }
  const std::vector<std::string> near = lite::near_names(words[0], names);
  fail(ErrorKind::Value, "there is no command '{}'.{}\n{}", words[0],
       near.empty() ? "" : " Did you mean " + near[0] + "?", usage());
}

}  // namespace

int main(int argc, char** argv) {
  return lite::run_program("mge-lite", 2, [&] { return run(argc, argv); });
}
