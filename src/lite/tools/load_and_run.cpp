// load_and_run MODEL [flags]: runs a model, times it, shows or saves its outputs. Scripts read the `avg_time=` line.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "lite/pack_model.h"
#include "lite/run/dump.h"
#include "lite/run/fitting.h"
#include "lite/run/program.h"
#include "lite/run/session.h"
#include "lite/run/verify.h"
#include "megengine/version.h"
#include "serial/container.h"

namespace lite {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

std::string file_name(std::string s) {
  std::replace_if(
      s.begin(), s.end(), [](char c) { return c == '/' || c == '\0'; }, '_');
  return s;
}

class Runner {
 public:
  Runner(const Flags& f, Clock::time_point start) : f_(f), s_(f) {
    std::printf("load model: %.3fms\n", ms_since(start));
  }

  int run() {
    if (f_.on("model_info")) print_info();
    if (f_.on("verbose")) print_verbose();
    const auto& tests = s_.tests();
    const bool stored = (!f_.given("input") && f_.integer("batch_size") <= 0 && !tests.empty()) || f_.on("verify");
    MGE_CHECK(!f_.on("verify") || !tests.empty(), Value,
              "--verify: the model has no test cases. trace.dump(input_data=...) puts them there.");
    const size_t cases = stored ? tests.size() : 1;
    std::printf("run testcase: %zu\n", cases);
    double total = 0;
    int different = 0;
    for (size_t i = 0; i < cases; ++i) {
      auto prepare = Clock::now();
      stored ? s_.feed(tests[i].inputs) : s_.feed(s_.given_inputs());
      std::printf("=== prepare: %.3fms; going to warmup\n", ms_since(prepare));
      total += run_case(i);
      if (stored) different += compare_outputs(tests[i], i);
      write_outputs(i);
    }
    if (f_.on("model_info")) print_info();
    std::printf("=== total time: %.3fms\n", total);
    write_models();
    if (f_.on("verify")) std::printf("=== verified %zu test cases: %s\n", cases, different ? "DIFFERENT" : "ok");
    if (!different || f_.on("disable_assert_throw")) return 0;
    std::fflush(stdout);
    std::fprintf(stderr,
                 "load_and_run: %d outputs differ from those of the test cases. mge-lite verify finds the op; "
                 "--disable_assert_throw goes on.\n",
                 different);
    return 1;
  }

 private:
  double run_case(size_t index) {
    if (s_.size() == 1) return run_loop(s_.net(0), index, "");
    std::vector<std::thread> threads;
    std::mutex mutex;
    double total = 0;
    std::exception_ptr error;
    auto work = [&](size_t i) {
      try {
        double t = run_loop(s_.net(i), index, mge::format("[thread {}] ", i));
        std::lock_guard<std::mutex> lock(mutex);
        total = std::max(total, t);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        error = std::current_exception();
      }
    };
    std::string none;  // why there is no further thread
    threads.reserve(s_.size());
    try {
      for (size_t i = 0; i < s_.size(); ++i) threads.emplace_back(work, i);
    } catch (const std::exception& e) {  // those that run must end first
      none = e.what();
    }
    for (auto& t : threads) t.join();
    MGE_CHECK(none.empty(), Env, "--thread {}: the system gives no thread after {}: {}.", s_.size(), threads.size(),
              none);
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
    const Engine& e = *s_.impl().engine;
    const auto i = static_cast<size_t>(s.graph_index);
    return e.knows_outputs() ? e.output_meta(i) : e.recorded_output_meta(i);
  }

  void write_outputs(size_t index) {
    auto& outputs = s_.impl().outputs;
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

  // Returns how many outputs differ. The first line is the original's.
  int compare_outputs(const mge::serial::TestCase& test, size_t index) {
    int different = 0;
    for (size_t i = 0; i < test.outputs.size(); ++i) {
      const mge::serial::TensorData& want = test.outputs[i];
      const IoSlot& s = s_.impl().find_io(want.name, LITE_OUTPUT);
      const Difference d = compare(output_meta(s), s.tensor->get_memory_ptr(), want, test.max_error);
      std::printf("AssertEqual: err=%g (name=%s id=%zu)\n", d.types.empty() ? d.worst : INFINITY, want.name.c_str(), i);
      different += !d.ok;
      if (f_.on("verify") || !d.ok)
        std::printf("verify #%zu %s: output %s: %s %s\n", index, test.name.c_str(), want.name.c_str(),
                    d.text(test.max_error).c_str(), d.ok ? "ok" : "DIFFERENT");
    }
    return different;
  }

  // ---- what the model is

  void print_info() {
    const mge::serial::LoadedModel& m = *s_.impl().model;
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
    for (const IoSlot& s : s_.impl().inputs) row("INPUT", s);
    for (const IoSlot& s : s_.impl().outputs) row("OUTPUT", s);
  }

  void print_verbose() {
    std::printf("%s\n", mge::ir::print(s_.impl().engine->graph(), {.types = true}).c_str());
    for (auto& p : s_.impl().engine->programs()) std::printf("%s\n", p->dump().c_str());
  }

  // ---- model files

  void write_models() {
    if (f_.given("model_dump")) write_graph(f_.text("model_dump"));
    if (f_.given("layout_transform_dump"))
      Runtime::dump_layout_transform_model(s_.shared(0), f_.text("layout_transform_dump"));
    if (f_.given("packed_model_dump")) {
      ModelPacker packer(f_.positional()[0], f_.text("packed_model_dump"), f_.text("pack_info_json"),
                         f_.text("pack_cache"));
      packer.set_header(f_.text("pack_model_cryption"), f_.text("pack_info_cryption"), true);
      packer.pack_model();
    }
    if (f_.given("fast_run_algo_policy") && (f_.on("fast_run") || f_.on("full_run")))
      dump_persistent_cache(f_.text("fast_run_algo_policy"));
  }

  void write_graph(const std::string& path) {
    Network::Impl& net = s_.impl();
    MGE_CHECK(!net.engine->dropped(), Value,
              "--model_dump: --record_comp_seq2 has dropped the graph. Use one of them.");
    net.write_graph(path);
  }

  const Flags& f_;
  Session s_;
};

int run(int argc, char** argv) {
  Flags flags(load_and_run_flags());
  flags.parse(argc, argv);
  if (flags.on("help") || flags.given("helpmatch")) {
    std::printf(
        "load_and_run MODEL [flags]: runs a model file, times it, shows or saves its outputs.\n"
        "  load_and_run net.mge --input data:images.npy --iter 100 --multithread 2 --out_npy out\n"
        "Flags are --flag, --flag=VALUE, --flag VALUE or --noflag, with dashes or underscores.\n%s",
        flags.help(flags.text("helpmatch")).c_str());
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
  std::printf("load_and_run %s, format %u\n", MGE_VERSION_STRING, mge::serial::kFormatVersion);
  for (const std::string& note : flags.notes()) std::printf("%s\n", note.c_str());
  if (flags.on("wait_gdb")) {
    std::printf("pid %d; press enter to go on\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
    std::getchar();
  }
  check_flags(flags);
  if (flags.on("fitting")) return fit(flags);
  return Runner(flags, Clock::now()).run();
}

}  // namespace
}  // namespace lite

int main(int argc, char** argv) {
  return lite::run_program("load_and_run", 1, [&] { return lite::run(argc, argv); });
}
