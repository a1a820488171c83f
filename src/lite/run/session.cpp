#include "lite/run/session.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/features.h"
#include "lite/convert.h"
#include "lite/global.h"

namespace lite {
namespace {

constexpr FlagKind B = FlagKind::Bool, I = FlagKind::Int, X = FlagKind::Number, T = FlagKind::Text, F = FlagKind::File,
                   D = FlagKind::Folder;
constexpr FlagState A = FlagState::Always, R = FlagState::Refused;

constexpr const char *kModel = "Model and inputs", *kRuns = "Runs and threads", *kKernels = "Choice of kernels",
                     *kOptions = "Options of the network", *kOut = "Outputs, dumps and profiles", *kChecks = "Checks",
                     *kWrite = "Model files it writes", *kCommand = "The command itself";

constexpr FlagDef kFlags[] = {
    {"input", T, "", "[NAME:]VALUE;...: x.npy, in.json, a.ppm, x.bin, {1,3,8,8} or [[1,2],[3,4]]", kModel},
    {"batch_size", I, "-1", "repeat the inputs' data to this first dimension", kModel},
    {"bare_model_cryption", T, "", "how the file is encrypted: AES_default, RC4_default ...", kModel},
    {"share_param_mem", B, "false", "read the file into memory and load it from there", kModel},
    {"c_opr_lib", F, "", "a library with operators (include/megbrain/custom), loaded before the model", kModel},
    {"model_info", B, "false", "print inputs and outputs before and after the run", kModel},

    {"iter", I, "10", "timed runs", kRuns},
    {"warmup_iter", I, "1", "runs before the timed ones", kRuns},
    {"thread", I, "1", "independent copies, sharing weights, run in parallel", kRuns},
    {"multithread", I, "-1", "threads of one network", kRuns},
    {"multithread_default", I, "-1", "the same, the caller's thread being one of them", kRuns},
    {"multi_thread_core_ids", T, "", "cores as 0,2,...: one for each thread of --multithread", kRuns},
    {"cpu_default", B, "false", "run on the caller's thread", kRuns},

    {"fast_run", B, "false", "measure kernels and take the fastest", kKernels},
    {"full_run", B, "false", "the same, slow ones included", kKernels},
    {"reproducible", B, "false", "only kernels with the same bits every time", kKernels},
    {"binary_equal_between_batch", B, "false", "the same bits for every batch size", kKernels},
    {"fast_run_shared_batch_size", I, "0", "measure with this batch size", kKernels},
    {"fast_run_algo_policy", F, "", "keep measured choices in this file; without --fast_run only read it", kKernels},
    {"workspace_limit", I, "-1", "bytes of scratch memory a kernel may use", kKernels},
    {"fitting", B, "false", "try sets of options and print the fastest", kKernels},

    {"weight_preprocess", B, "false", "weights in the order of their kernels, once", kOptions},
    {"enable_fuse_preprocess", B, "false", "image bytes to a normalised tensor in one op", kOptions},
    {"enable_ioc16", B, "false", "float16 between ops; outputs keep their dtype", kOptions},
    {"const_shape", B, "false", "inputs keep their first sizes; the graph goes once it is compiled", kOptions},
    {"no_sanity_check", B, "false", "programs are not proved before they run", kOptions},
    {"enable_jit", B, "false", "of fusion, only that of elementwise ops", kOptions},
    {"fake_first", B, "false", "the first run only compiles and allocates", kOptions},
    {"record_comp_seq", B, "false", "all that a run needs is resolved once", kOptions},
    {"record_comp_seq2", B, "false", "and the graph is dropped (with --no_sanity_check)", kOptions},
    {"disable_mem_opt", B, "false", "no value shares memory with another", kOptions},
    {"layout_transform", T, "", "layouts chosen for the whole graph: cpu", kOptions},
    {"enable_nchw4", B, "false", "layout that convolutions work in (kernels choose it: docs/lite.md)", kOptions},
    {"enable_nchw44", B, "false", "the same", kOptions},
    {"enable_nchw44_dot", B, "false", "the same", kOptions},
    {"enable_nchw88", B, "false", "the same", kOptions},
    {"enable_nchw32", B, "false", "the same", kOptions},
    {"enable_nchw64", B, "false", "the same", kOptions},
    {"enable_nhwcd4", B, "false", "the same", kOptions},

    {"print_outputs", B, "false", "print the outputs' first values", kOut},
    {"out_npy", D, "", "write each output to DIR/<name>.npy, exact bits", kOut},
    {"bin_out_dump", D, "", "write outputs to DIR/run<k>-var<i>, in the binary dump format", kOut},
    {"io_dump", F, "", "write every value of the graph as text; of several text dumps the last is made", kOut},
    {"io_dump_stdout", B, "false", "the same to standard output", kOut},
    {"io_dump_stderr", B, "false", "the same to standard error", kOut},
    {"bin_io_dump", D, "", "write every value of the graph, in the binary dump format", kOut},
    {"profile", F, "", "write the time of every op, as JSON", kOut},
    {"profile_host", F, "", "the same: on the CPU the host does the work", kOut},
    {"get_static_mem_info", D, "", "write graph.json and StaticMemoryInfo.json", kOut},

    {"verify", B, "false", "run the test cases in the model and print each comparison", kChecks},
    {"disable_assert_throw", B, "false", "a test case that differs is printed, not an error", kChecks},
    {"range", X, "0", "error when a value of the graph lies beyond this", kChecks},
    {"check_var_value", T, "", "INTERVAL[:FIRST]: error when a value changes from run to run", kChecks},

    {"model_dump", F, "", "the graph as it is optimised for inference, after the run", kWrite},
    {"layout_transform_dump", F, "", "the graph of --layout_transform", kWrite},
    {"packed_model_dump", F, "", "the model packed with what the next flags name", kWrite},
    {"pack_info_json", F, "", "information to pack: JSON", kWrite},
    {"pack_cache", F, "", "choices of kernels to pack: a file of --fast_run_algo_policy", kWrite},
    {"pack_info_cryption", T, "NONE", "how the packed information is encrypted", kWrite},
    {"pack_model_cryption", T, "NONE", "how the packed model is encrypted", kWrite},
    {"dump_fitting_model", F, "", "the model packed with the options that --fitting found", kWrite},

    {"help", B, "false", "this text", kCommand},
    {"helpmatch", T, "", "the part of it that has this text", kCommand},
    {"version", B, "false", "print the version", kCommand},
    {"flagfile", F, "", "more flags, one per line", kCommand},
    {"fromenv", T, "", "flags a,b from FLAGS_a and FLAGS_b of the environment", kCommand},
    {"verbose", B, "false", "log everything; print the graph and the compiled program", kCommand},
    {"wait_gdb", B, "false", "print the process id and wait for a key", kCommand},

    {"cpu", B, "false", "the CPU is the device of this build", kRuns, A},
    {"lite", B, "false", "one engine runs every kind of model file", kModel, A},
    {"mdl", B, "false", "one engine runs every kind of model file", kModel, A},
    {"copy_to_host", B, "false", "times include the copy of the outputs", kRuns, A},
    {"optimize_for_inference", B, "false", "the inference passes run on every model", kOptions, A},
    {"enable_fuse_conv_bias_nonlinearity", B, "false", "convolution, bias and activation are fused", kOptions, A},
    {"enable_fuse_conv_bias_with_z", B, "false", "convolution and addition are fused", kOptions, A},
    {"fuse_grain", B, "false", "a sum by its count is a mean, global pooling a reduction", kOptions, A},
    {"enable_chwn4", B, "false", "kernels choose layouts themselves", kOptions, A},

    {"cuda", B, "false", "Lite runs on the CPU in this build; leave the flag out", kRuns, R},
    {"tensorrt", B, "false", "this build has no TensorRT; leave the flag out", kKernels, R},
    {"tensorrt_cache", F, "", "this build has no TensorRT; leave the flag out", kKernels, R},
    {"check_dispatch", B, "false",
     "ops are calls of kernels, none waits in a queue; --profile lists the calls that were made", kChecks, R},
    {"c_opr_lib_with_param", B, "false", "operators of libraries have their parameters in the model", kModel, R},
    {"c_opr_init_interface", T, "mgb_c_opr_init",
     "libraries are built with include/megbrain/custom/custom.h, which names their entry; --c_opr_lib loads them",
     kModel, R},
};

std::vector<int> parse_core_ids(const std::string& text) {
  std::vector<int> out;
  const char *p = text.data(), *end = p + text.size();
  for (;;) {
    int id = -1;
    auto r = std::from_chars(p, end, id);
    MGE_CHECK(r.ec == std::errc() && id >= 0 && id < CPU_SETSIZE && (r.ptr == end || *r.ptr == ','), Value,
              "--multi_thread_core_ids takes numbers of cores as 0,1,...; got '{}'.", text);
    out.push_back(id);
    if (r.ptr == end) return out;
    p = r.ptr + 1;
  }
}

}  // namespace

std::span<const FlagDef> load_and_run_flags() { return kFlags; }

void check_flags(const Flags& f) {
  auto at_least = [&](const char* name, long least) {
    MGE_CHECK(f.integer(name) >= least, Value, "--{} must be {} or more; got {}.", name, least, f.integer(name));
  };
  auto exclude = [&](const char* a, const char* b) {
    auto asked = [&](const char* name) {
      return f.given(name) && (f.definition(name).kind != FlagKind::Bool || f.on(name));
    };
    MGE_CHECK(!asked(a) || !asked(b), Value, "--{} and --{} exclude each other.", a, b);
  };
  auto needs = [&](const char* a, const char* b) {
    MGE_CHECK(!f.given(a) || f.given(b), Value, "--{} needs --{}.", a, b);
  };
  at_least("iter", 1);
  at_least("warmup_iter", 0);
  at_least("thread", 1);
  at_least("fast_run_shared_batch_size", 0);
  MGE_CHECK(f.integer("thread") <= 256, Value, "--thread must be at most 256; got {}.", f.integer("thread"));
  for (const char* name : {"multithread", "multithread_default", "batch_size"})
    if (f.given(name)) at_least(name, 1);
  if (f.given("workspace_limit")) at_least("workspace_limit", 0);
  exclude("multithread", "multithread_default");
  exclude("fast_run", "full_run");
  exclude("lite", "mdl");
  exclude("fitting", "thread");
  needs("dump_fitting_model", "fitting");
  needs("layout_transform_dump", "layout_transform");
  for (const char* name : {"pack_info_json", "pack_cache", "pack_info_cryption", "pack_model_cryption"})
    needs(name, "packed_model_dump");
  MGE_CHECK(!f.on("record_comp_seq2") || (f.on("no_sanity_check") && !f.on("fake_first")), Value,
            "--record_comp_seq2 needs --no_sanity_check and excludes --fake_first.");
  if (f.given("layout_transform"))
    MGE_CHECK(f.text("layout_transform") == "cpu", Value, "--layout_transform: cpu is the only target; got '{}'.",
              f.text("layout_transform"));
  if (f.given("multi_thread_core_ids")) {
    const std::string_view threads = f.last_of({"multithread", "multithread_default"});
    MGE_CHECK(!threads.empty(), Value, "--multi_thread_core_ids needs --multithread.");
    const size_t given = parse_core_ids(f.text("multi_thread_core_ids")).size();
    MGE_CHECK(given == static_cast<size_t>(f.integer(threads)), Value,
              "--multi_thread_core_ids names {} cores for {} threads.", given, f.integer(threads));
  }
}

Session::Session(const Flags& f) : f_(f) {
  if (f_.given("range")) checks_.set_range(f_.number("range"));
  if (f_.given("check_var_value")) checks_.set_repeat(f_.text("check_var_value"));
  if (f_.given("c_opr_lib")) set_loader_lib_path(f_.text("c_opr_lib"));
  if (f_.given("fast_run_algo_policy")) set_persistent_cache(f_.text("fast_run_algo_policy"));
  for (long i = 0; i < f_.integer("thread"); ++i) {
    std::shared_ptr<Network> net = configured();
    if (i == 0) {
      set_dumps(net);
      load(net);
      tests_ = NetworkAccess::impl(*net).model->info.tests;
    } else {
      Runtime::shared_weight_with_network(net, nets_[0]);
    }
    if (f_.given("workspace_limit"))
      Runtime::set_network_algo_workspace_limit(net, static_cast<size_t>(f_.integer("workspace_limit")));
    if (f_.given("multi_thread_core_ids")) set_core_ids(net);
    nets_.push_back(std::move(net));
  }
  if (f_.given("get_static_mem_info")) net(0).get_static_memory_alloc_info(f_.text("get_static_mem_info"));
}

Config Session::config() const {
  Config c;
  c.bare_model_cryption_name = f_.text("bare_model_cryption");
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

std::shared_ptr<Network> Session::configured() {
  auto net = std::make_shared<Network>(config());
  const std::string_view threads = f_.last_of({"multithread", "multithread_default"});
  if (!threads.empty()) Runtime::set_cpu_threads_number(net, static_cast<size_t>(f_.integer(threads)));
  if (f_.on("cpu_default") || threads == "multithread_default") Runtime::set_cpu_inplace_mode(net);
  NetworkAccess::impl(*net).share_memory = !f_.on("disable_mem_opt");

  unsigned strategy = 0;
  const bool measure = f_.on("fast_run") || f_.on("full_run");
  if (measure) strategy |= LITE_ALGO_PROFILE;
  if (f_.on("fast_run")) strategy |= LITE_ALGO_OPTIMIZED;
  if (!measure && f_.given("fast_run_algo_policy")) strategy |= LITE_ALGO_PROFILE | LITE_ALGO_HEURISTIC;
  const bool equal = f_.on("binary_equal_between_batch");
  if (equal || f_.on("reproducible")) {
    if (!strategy) strategy = LITE_ALGO_HEURISTIC;
    strategy |= LITE_ALGO_REPRODUCIBLE;
  }
  if (strategy)
    Runtime::set_network_algo_policy(net, static_cast<LiteAlgoSelectStrategy>(strategy),
                                     static_cast<uint32_t>(f_.integer("fast_run_shared_batch_size")), equal);
  MGE_CHECK(measure || f_.integer("fast_run_shared_batch_size") == 0, Value,
            "--fast_run_shared_batch_size needs --fast_run or --full_run.");
  if (f_.given("layout_transform")) Runtime::enable_global_layout_transform(net);
  return net;
}

void Session::load(const std::shared_ptr<Network>& net) {
  const std::string& path = f_.positional()[0];
  if (!f_.on("share_param_mem")) return net->load_model(path);
  file_ = mge::serial::open_file(path);
  net->load_model(const_cast<uint8_t*>(file_.bytes.data()), file_.bytes.size());
}

void Session::set_dumps(const std::shared_ptr<Network>& net) {
  const std::string_view text = f_.last_of({"io_dump", "io_dump_stdout", "io_dump_stderr"});
  if (!text.empty())
    Runtime::enable_io_txt_dump(net, text == "io_dump"          ? f_.text("io_dump")
                                     : text == "io_dump_stdout" ? "/dev/stdout"
                                                                : "/dev/stderr");
  if (f_.given("bin_io_dump")) Runtime::enable_io_bin_dump(net, f_.text("bin_io_dump"));
  const std::string_view profile = f_.last_of({"profile", "profile_host"});
  if (!profile.empty()) net->enable_profile_performance(f_.text(profile));
  if (checks_.any()) {
    mge::require("value_dumps", "load_and_run: checks of values");
    NetworkAccess::impl(*net).on_values = [this](const std::vector<DumpedValue>& values) { checks_(values); };
  }
}

void Session::set_core_ids(const std::shared_ptr<Network>& net) const {
  const std::vector<int> cores = parse_core_ids(f_.text("multi_thread_core_ids"));
  std::atomic<int> failed{-1};
  Runtime::set_runtime_thread_affinity(net, [&](int thread) {
    const int core = cores[static_cast<size_t>(thread)];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) failed = core;
  });
  MGE_CHECK(failed < 0, Env, "--multi_thread_core_ids: this process may not run on core {}.", failed.load());
}

std::vector<InputData> Session::given_inputs() {
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

namespace {
void set_tensor(Network& net, const std::string& name, const Layout& l, const void* data) {
  auto t = net.get_io_tensor(name, LITE_INPUT);
  t->set_layout(l);
  size_t bytes = layout_bytes(l);
  void* to = t->get_memory_ptr();
  if (bytes) std::memcpy(to, data, bytes);
}
}  // namespace

void Session::feed(const std::vector<InputData>& inputs) {
  for (auto& net : nets_)
    for (const InputData& d : inputs) set_tensor(*net, d.name, d.layout, d.bytes.data());
}
void Session::feed(const std::vector<mge::serial::TensorData>& inputs) {
  for (auto& net : nets_)
    for (auto& t : inputs) set_tensor(*net, t.name, to_lite(t.meta, "test input '" + t.name + "'"), t.data());
}

}  // namespace lite
