// load_and_run MODEL [flags]: runs a model, times it, shows or saves its outputs. Scripts read the `avg_time=` line.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "ir/text.h"
#include "lite/convert.h"
#include "lite/error.h"
#include "lite/global.h"
#include "lite/network_impl.h"
#include "lite/run/dump.h"
#include "lite/run/flags.h"
#include "lite/run/input_data.h"
#include "megengine/version.h"
#include "serial/container.h"
#include "serial/file.h"

namespace lite {
namespace {

constexpr FlagKind B = FlagKind::Bool, I = FlagKind::Int, T = FlagKind::Text;
constexpr FlagDef kFlags[] = {
    {"help", B, "false", "this text"},
    {"version", B, "false", "print the version"},
    {"input", T, "", "inputs as [NAME:]VALUE;...: x.npy, in.json, a.ppm, {1,3,8,8} or [[1,2],[3,4]]"},
    {"batch_size", I, "-1", "repeat the inputs' data to this first dimension"},
    {"iter", I, "10", "timed runs"},
    {"warmup_iter", I, "1", "runs before the timed ones"},
    {"thread", I, "1", "independent copies, sharing weights, run in parallel"},
    {"multithread", I, "-1", "threads of one network"},
    {"multithread_default", I, "-1", "the same, on the caller's thread"},
    {"cpu", B, "false", "run on the CPU (the default)"},
    {"cpu_default", B, "false", "run on the caller's thread"},
    {"lite", B, "false", "use the Lite API (always)"},
    {"share_param_mem", B, "false", "load the model through memory"},
    {"model_info", B, "false", "print inputs and outputs before and after the run"},
    {"verify", B, "false", "run the test cases in the model and compare; exit code 1 when one differs"},
    {"out_npy", T, "", "write each output to DIR/<name>.npy, exact bits"},
    {"bin_out_dump", T, "", "write outputs to DIR/run<k>-var<i>, in the binary dump format"},
    {"io_dump", T, "", "write every value of the graph to FILE as text"},
    {"io_dump_stdout", B, "false", "the same to standard output"},
    {"io_dump_stderr", B, "false", "the same to standard error"},
    {"bin_io_dump", T, "", "write every value of the graph to DIR, in the binary dump format"},
    {"print_outputs", B, "false", "print the outputs' first values"},
    {"copy_to_host", B, "false", "count the copy of the outputs (always)"},
    {"optimize_for_inference", B, "false", "run the inference passes (always)"},
    {"enable_fuse_conv_bias_nonlinearity", B, "false", "fuse convolution, bias and activation (always)"},
    {"enable_fuse_conv_bias_with_z", B, "false", "fuse convolution and addition (always)"},
    {"enable_fuse_preprocess", B, "false", "option fuse_preprocess"},
    {"fuse_grain", B, "false", "a sum by its count as a mean, global pooling as a reduction (always)"},
    {"enable_ioc16", B, "false", "float16 between ops; outputs keep their dtype"},
    {"weight_preprocess", B, "false", "option weight_preprocess"},
    {"const_shape", B, "false", "option const_shape"},
    {"fake_first", B, "false", "the first run only compiles and allocates"},
    {"no_sanity_check", B, "false", "option var_sanity_check_first_run=false"},
    {"record_comp_seq", B, "false", "option comp_node_seq_record_level=1"},
    {"record_comp_seq2", B, "false", "option comp_node_seq_record_level=2"},
    {"enable_jit", B, "false", "option jit_level=1"},
    {"reproducible", B, "false", "same bits every time (always)"},
    {"binary_equal_between_batch", B, "false", "same bits for every batch size (always)"},
    {"disable_assert_throw", B, "false", "a test case that differs is printed, not an error"},
    {"enable_nchw4", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nchw44", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nchw44_dot", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nchw88", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nchw32", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nchw64", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"enable_nhwcd4", B, "false", "layout that convolutions work in (docs/lite.md)"},
    {"verbose", B, "false", "log everything; print the graph and the compiled program"},
    {"wait_gdb", B, "false", "print the process id and wait for a key"},
    {"mdl", B, "false", nullptr},
    {"cuda", B, "false", nullptr},
    {"multi_thread_core_ids", T, "", nullptr},
    {"fast_run", B, "false", nullptr},
    {"full_run", B, "false", nullptr},
    {"fast_run_shared_batch_size", I, "0", nullptr},
    {"fast_run_algo_policy", T, "", nullptr},
    {"enable_chwn4", B, "false", nullptr},
    {"disable_mem_opt", B, "false", nullptr},
    {"workspace_limit", T, "", nullptr},
    {"tensorrt", B, "false", nullptr},
    {"tensorrt_cache", T, "", nullptr},
    {"layout_transform", T, "", nullptr},
    {"layout_transform_dump", T, "", nullptr},
    {"profile", T, "", "write the time of every op to this file, as JSON"},
    {"profile_host", T, "", "the same: on the CPU the host does the work"},
    {"range", T, "", nullptr},
    {"check_dispatch", B, "false", nullptr},
    {"check_var_value", T, "", nullptr},
    {"get_static_mem_info", T, "", "write graph.json and StaticMemoryInfo.json to this folder"},
    {"c_opr_lib", T, "", nullptr},
    {"c_opr_lib_with_param", B, "false", nullptr},
    {"c_opr_init_interface", T, "", nullptr},
    {"packed_model_dump", T, "", nullptr},
    {"pack_info_json", T, "", nullptr},
    {"pack_cache", T, "", nullptr},
    {"pack_info_cryption", T, "", nullptr},
    {"pack_model_cryption", T, "", nullptr},
    {"model_dump", T, "", nullptr},
    {"fitting", B, "false", nullptr},
    {"dump_fitting_model", T, "", nullptr},
    {"flagfile", T, "", nullptr},
    {"fromenv", T, "", nullptr},
    {"helpmatch", T, "", nullptr},
};

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

std::string file_name(std::string s) {
  std::replace_if(
      s.begin(), s.end(), [](char c) { return c == '/' || c == '\0'; }, '_');
  return s;
}

class Runner {
 public:
  explicit Runner(const Flags& f) : f_(f) {}

  int run() {
    auto start = Clock::now();
    std::printf("load_and_run %s, format %u\n", MGE_VERSION_STRING, mge::serial::kFormatVersion);
    if (f_.on("wait_gdb")) {
      std::printf("pid %d; press enter to go on\n", static_cast<int>(::getpid()));
      std::getchar();
    }
    check_flags();
    load();
    std::printf("load model: %.3fms\n", ms_since(start));
    if (f_.on("model_info")) print_info();
    if (f_.on("verbose")) print_verbose();

    const auto& tests = model().info.tests;
    bool stored = !f_.given("input") && f_.integer("batch_size") <= 0 && !tests.empty();
    size_t cases = stored || f_.on("verify") ? tests.size() : 1;
    MGE_CHECK(!f_.on("verify") || !tests.empty(), Value, "--verify: the model has no test cases.");
    std::printf("run testcase: %zu\n", cases);
    double total = 0;
    int different = 0;
    for (size_t i = 0; i < cases; ++i) {
      auto prepare = Clock::now();
      bool from_file = stored || f_.on("verify");
      for (auto& net : nets_) from_file ? feed(*net, tests[i].inputs) : feed(*net, given_inputs());
      std::printf("=== prepare: %.3fms; going to warmup\n", ms_since(prepare));
      total += run_case(i);
      if (from_file) different += compare(tests[i], i, f_.on("verify"));
      write_outputs(i);
    }
    if (f_.on("model_info")) print_info();
    std::printf("=== total time: %.3fms\n", total);
    if (!f_.on("verify")) return 0;
    std::printf("=== verified %zu test cases: %s\n", cases, different ? "DIFFERENT" : "ok");
    return different && !f_.on("disable_assert_throw") ? 1 : 0;
  }

 private:
  Network& net() { return *nets_[0]; }
  Network::Impl& impl() { return NetworkAccess::impl(net()); }
  const mge::serial::LoadedModel& model() { return *impl().model; }

  void check_flags() {
    auto at_least = [&](const char* name, long least) {
      MGE_CHECK(f_.integer(name) >= least, Value, "--{} must be {} or more; got {}.", name, least, f_.integer(name));
    };
    at_least("iter", 1);
    at_least("warmup_iter", 0);
    at_least("thread", 1);
    MGE_CHECK(f_.integer("thread") <= 256, Value, "--thread must be at most 256; got {}.", f_.integer("thread"));
    MGE_CHECK(!(f_.given("multithread") && f_.given("multithread_default")), Value,
              "--multithread and --multithread_default exclude each other.");
    for (const char* name : {"multithread", "multithread_default"})
      if (f_.given(name)) at_least(name, 1);
    if (f_.given("batch_size")) at_least("batch_size", 1);
    MGE_CHECK(!f_.on("record_comp_seq2") || (f_.on("no_sanity_check") && !f_.on("fake_first")), Value,
              "--record_comp_seq2 needs --no_sanity_check and excludes --fake_first.");
  }

  Config config() const {
    Config c;
    Options& o = c.options;
    o.weight_preprocess = f_.on("weight_preprocess");
    o.fuse_preprocess = f_.on("enable_fuse_preprocess");
    o.fake_next_exec = f_.on("fake_first");
    o.var_sanity_check_first_run = !f_.on("no_sanity_check");
    o.const_shape = f_.on("const_shape");
    o.jit_level = f_.on("enable_jit");
    o.comp_node_seq_record_level = f_.on("record_comp_seq2") ? 2 : f_.on("record_comp_seq") ? 1 : 0;
    o.enable_nchw4 = f_.on("enable_nchw4");
    o.enable_nchw44 = f_.on("enable_nchw44");
    o.enable_nchw44_dot = f_.on("enable_nchw44_dot");
    o.enable_nchw88 = f_.on("enable_nchw88");
    o.enable_nchw32 = f_.on("enable_nchw32");
    o.enable_nchw64 = f_.on("enable_nchw64");
    o.enable_nhwcd4 = f_.on("enable_nhwcd4");
    o.enable_f16_io_comp = f_.on("enable_ioc16");
    return c;
  }

  void load() {
    const std::string& path = f_.positional()[0];
    for (long i = 0; i < f_.integer("thread"); ++i) {
      auto net = std::make_shared<Network>(config());
      for (const char* name : {"multithread", "multithread_default"})
        if (f_.given(name)) Runtime::set_cpu_threads_number(net, static_cast<size_t>(f_.integer(name)));
      if (f_.on("cpu_default") || f_.given("multithread_default")) Runtime::set_cpu_inplace_mode(net);
      if (i == 0) set_dumps(net);
      if (i > 0) {
        Runtime::shared_weight_with_network(net, nets_[0]);
      } else if (f_.on("share_param_mem")) {
        mge::serial::File file = mge::serial::open_file(path);
        net->load_model(const_cast<uint8_t*>(file.bytes.data()), file.bytes.size());
      } else {
        net->load_model(path);
      }
      if (f_.given("get_static_mem_info")) net->get_static_memory_alloc_info(f_.text("get_static_mem_info"));
      nets_.push_back(std::move(net));
    }
  }

  void set_dumps(const std::shared_ptr<Network>& net) {
    if (f_.given("io_dump")) Runtime::enable_io_txt_dump(net, f_.text("io_dump"));
    if (f_.on("io_dump_stdout")) Runtime::enable_io_txt_dump(net, "/dev/stdout");
    if (f_.on("io_dump_stderr")) Runtime::enable_io_txt_dump(net, "/dev/stderr");
    for (const char* flag : {"profile", "profile_host"})
      if (f_.given(flag)) net->enable_profile_performance(f_.text(flag));
    if (f_.given("bin_io_dump")) Runtime::enable_io_bin_dump(net, f_.text("bin_io_dump"));
  }

  // ---- inputs

  std::vector<InputData> given_inputs() {
    std::vector<IO> ios;
    for (const IoSlot& s : impl().inputs) {
      ios.push_back(s.io);
      ios.back().config_layout = s.tensor->get_layout();
    }
    std::vector<InputData> data = parse_inputs(f_.text("input"), ios);
    long batch = f_.integer("batch_size");
    if (batch <= 0) return data;
    for (const IO& io : ios)
      if (std::none_of(data.begin(), data.end(), [&](const InputData& d) { return d.name == io.name; })) {
        InputData zeros{io.name, io.config_layout, {}};
        zeros.bytes.resize(layout_bytes(io.config_layout));
        data.push_back(std::move(zeros));
      }
    for (InputData& d : data) set_batch(&d, static_cast<size_t>(batch));
    return data;
  }

  static void set_tensor(Network& net, const std::string& name, const Layout& l, const void* data) {
    auto t = net.get_io_tensor(name, LITE_INPUT);
    t->set_layout(l);
    size_t bytes = layout_bytes(l);
    void* to = t->get_memory_ptr();
    if (bytes) std::memcpy(to, data, bytes);
  }
  static void feed(Network& net, const std::vector<InputData>& inputs) {
    for (const InputData& d : inputs) set_tensor(net, d.name, d.layout, d.bytes.data());
  }
  static void feed(Network& net, const std::vector<mge::serial::TensorData>& inputs) {
    for (auto& t : inputs) set_tensor(net, t.name, to_lite(t.meta, "test input '" + t.name + "'"), t.data());
  }

  // ---- running

  double run_case(size_t index) {
    if (nets_.size() == 1) return run_loop(net(), index, "");
    std::vector<std::thread> threads;
    std::mutex mutex;
    double total = 0;
    std::exception_ptr error;
    for (size_t i = 0; i < nets_.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          double t = run_loop(*nets_[i], index, mge::format("[thread {}] ", i));
          std::lock_guard<std::mutex> lock(mutex);
          total = std::max(total, t);
        } catch (...) {
          std::lock_guard<std::mutex> lock(mutex);
          error = std::current_exception();
        }
      });
    for (auto& t : threads) t.join();
    if (error) std::rethrow_exception(error);
    return total;
  }

  double run_loop(Network& net, size_t index, const std::string& prefix) {
    for (long i = 0; index == 0 && i < f_.integer("warmup_iter"); ++i) {
      auto t = Clock::now();
      net.forward();
      net.wait();
      std::printf("%swarm up %ld  %.3fms\n", prefix.c_str(), i, ms_since(t));
    }
    long n = f_.integer("iter");
    double sum = 0, squares = 0, least = INFINITY, most = 0;
    for (long i = 0; i < n; ++i) {
      auto t = Clock::now();
      net.forward();
      double host = ms_since(t);
      net.wait();
      double ms = ms_since(t);
      std::printf("%siter %ld/%ld: e2e=%.3f ms (host=%.3f ms)\n", prefix.c_str(), i, n, ms, host);
      sum += ms;
      squares += ms * ms;
      least = std::min(least, ms);
      most = std::max(most, ms);
    }
    auto count = static_cast<double>(n);
    double mean = sum / count;
    double deviation = n > 1 ? std::sqrt(std::max(0.0, (squares - sum * mean) / (count - 1))) : 0;
    std::printf(
        "%s=== finished test #%zu: time=%.3f ms avg_time=%.3f ms standard_deviation=%.3f ms min=%.3f ms max=%.3f ms\n",
        prefix.c_str(), index, sum, mean, deviation, least, most);
    return sum;
  }

  // ---- outputs

  /// As the graph sees it: real rank, real dtype.
  mge::Meta output_meta(const IoSlot& s) {
    const Engine& e = *impl().engine;
    const auto i = static_cast<size_t>(s.graph_index);
    return e.knows_outputs() ? e.output_meta(i) : e.recorded_output_meta(i);
  }

  void write_outputs(size_t index) {
    auto& outputs = impl().outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const IoSlot& s = outputs[i];
      mge::Meta m = output_meta(s);
      const void* data = s.tensor->get_memory_ptr();
      if (f_.given("out_npy")) {
        make_folder(f_.text("out_npy"));
        std::string suffix = index ? mge::format(".{}", index) : "";
        write_npy(mge::format("{}/{}{}.npy", f_.text("out_npy"), file_name(s.io.name), suffix), m, data);
      }
      if (f_.given("bin_out_dump")) {
        make_folder(f_.text("bin_out_dump"));
        write_binary_value(mge::format("{}/run{}-var{}", f_.text("bin_out_dump"), index, i),
                           {static_cast<int>(i), s.io.name, "output", "", m, data});
      }
      if (f_.on("print_outputs"))
        std::printf("output %s %s: %s\n", s.io.name.c_str(), m.str().c_str(), value_text(m, data, 16).c_str());
    }
  }

  // Returns how many outputs differ.
  int compare(const mge::serial::TestCase& test, size_t index, bool print) {
    int different = 0;
    for (auto& want : test.outputs) {
      const IoSlot& s = impl().find_io(want.name, LITE_OUTPUT);
      mge::Meta m = output_meta(s);
      const void* got = s.tensor->get_memory_ptr();
      std::string verdict;
      bool ok = m.same_type(want.meta);
      if (!ok) {
        verdict = mge::format("is {}, expected {}", m.str(), want.meta.str());
      } else if (m.bytes() == 0 || std::memcmp(got, want.data(), m.bytes()) == 0) {
        verdict = "identical";
      } else {
        double worst = 0;
        for (int64_t i = 0; i < m.shape.numel(); ++i) {
          double a = element_value(m.dtype, got, i), b = element_value(m.dtype, want.data(), i);
          double e = std::fabs(a - b) / std::max(std::min(std::fabs(a), std::fabs(b)), 1.0);
          if (a != b && !(std::isnan(a) && std::isnan(b))) worst = std::isnan(e) ? INFINITY : std::max(worst, e);
        }
        ok = test.max_error > 0 && worst <= test.max_error;
        verdict = mge::format("maximum error {:.3g}, allowed {:.3g}", worst, test.max_error);
      }
      different += !ok;
      if (print || !ok)
        std::printf("verify #%zu %s: output %s: %s %s\n", index, test.name.c_str(), want.name.c_str(), verdict.c_str(),
                    ok ? "ok" : "DIFFERENT");
    }
    return different;
  }

  // ---- what the model is

  void print_info() {
    const mge::serial::LoadedModel& m = model();
    std::printf("model: %zu bytes, %zu of them weights%s; producer '%s'; %zu nodes; %zu test cases\n", m.file_bytes,
                m.weight_bytes, m.mapped ? " (mapped)" : "", m.info.producer.c_str(), m.graph.n_nodes(),
                m.info.tests.size());
    for (auto& [key, value] : m.info.metadata) std::printf("metadata: %s = %s\n", key.c_str(), value.c_str());
    std::printf("| %-6s | %-24s | %-20s | %-8s |\n", "type", "name", "shape", "dtype");
    auto row = [](const char* what, const IoSlot& s) {
      Layout l = s.tensor->get_layout();
      std::string shape;
      for (size_t i = 0; i < l.ndim; ++i) shape += (i ? "," : "") + std::to_string(l.shapes[i]);
      std::printf("| %-6s | %-24s | %-20s | %-8s |\n", what, s.io.name.c_str(), ("{" + shape + "}").c_str(),
                  dtype_text(l.data_type));
    };
    for (const IoSlot& s : impl().inputs) row("INPUT", s);
    for (const IoSlot& s : impl().outputs) row("OUTPUT", s);
  }

  void print_verbose() {
    std::printf("%s\n", mge::ir::print(impl().engine->graph(), {.types = true}).c_str());
    for (auto& p : impl().engine->programs()) std::printf("%s\n", p->dump().c_str());
  }

  const Flags& f_;
  std::vector<std::shared_ptr<Network>> nets_;
};

int run(int argc, char** argv) {
  Flags flags(kFlags);
  flags.parse(argc, argv);
  if (flags.on("help")) {
    std::printf("load_and_run MODEL [flags]\n%s", flags.help().c_str());
    return 0;
  }
  if (flags.on("version")) {
    std::printf("%s\n", MGE_VERSION_STRING);
    return 0;
  }
  MGE_CHECK(flags.positional().size() == 1, Value,
            "one model file is needed; got {}. Usage: load_and_run MODEL [flags], --help lists them.",
            flags.positional().size());
  set_log_level(flags.on("verbose") ? DEBUG : INFO);
  return Runner(flags).run();
}

}  // namespace
}  // namespace lite

int main(int argc, char** argv) {
  try {
    return lite::run(argc, argv);
  } catch (...) {
    std::fflush(stdout);
    std::fprintf(stderr, "load_and_run: %s\n", lite::current_error_text().c_str());
    return 1;
  }
}
