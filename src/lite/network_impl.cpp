#include "lite/network_impl.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/features.h"
#include "base/parallel.h"
#include "base/write_file.h"
#include "core/fork.h"
#include "lite/convert.h"
#include "lite/error.h"
#include "lite/log.h"
#include "lite/run/dump.h"
#include "lite/run/json.h"
#include "lite/tensor_impl.h"
#include "plan/describe.h"

namespace lite {
namespace {

using mge::Buffer;
using mge::Meta;

std::string list(const std::vector<IoSlot>& slots) {
  std::string s;
  for (const IoSlot& slot : slots) s += (s.empty() ? "" : ", ") + slot.io.name;
  return s.empty() ? "none" : s;
}

std::unordered_map<std::string, std::pair<IO, std::shared_ptr<Tensor>>> io_map(const std::vector<IoSlot>& slots) {
  std::unordered_map<std::string, std::pair<IO, std::shared_ptr<Tensor>>> m;
  for (const IoSlot& s : slots) m.emplace(s.io.name, std::make_pair(s.io, s.tensor));
  return m;
}

}  // namespace

// ---- loading

Network::Impl::~Impl() = default;

void Network::Impl::check_not_loaded(const char* what) const {
  MGE_CHECK(!model, Assertion, "lite: {} must come before load_model.", what);
}
void Network::Impl::check_loaded(const char* what) const {
  MGE_CHECK(model, Assertion, "lite: {} needs a loaded model. Call load_model first.", what);
}

void Network::Impl::check_config() const {
  MGE_CHECK(config.device_type == LITE_CPU || config.device_type == LITE_DEVICE_DEFAULT, NotImplemented,
            "lite: device type {}: this library runs on the CPU; use LITE_CPU or LITE_DEVICE_DEFAULT.",
            static_cast<int>(config.device_type));
  MGE_CHECK(config.backend == LITE_DEFAULT, Value, "lite: {} is no LiteBackend; there is LITE_DEFAULT (0).",
            static_cast<int>(config.backend));
  for (auto* ios : {&network_io.inputs, &network_io.outputs})
    for (const IO& io : *ios)
      MGE_CHECK(io.io_type == LITE_IO_VALUE || io.io_type == LITE_IO_SHAPE, Value,
                "lite: the io_type of '{}' is {}; it must be LITE_IO_VALUE (0) or LITE_IO_SHAPE (1).", io.name,
                static_cast<int>(io.io_type));
  const Options& o = config.options;
  if (o.force_dynamic_alloc) mge::require("checks", "lite: force_dynamic_alloc");
  MGE_CHECK(!(o.force_output_dynamic_alloc && o.force_output_use_user_specified_memory), Value,
            "lite: force_output_dynamic_alloc and force_output_use_user_specified_memory exclude each other.");
  MGE_CHECK(o.comp_node_seq_record_level <= 2, Value, "lite: comp_node_seq_record_level is 0, 1 or 2; got {}.",
            static_cast<int>(o.comp_node_seq_record_level));
  MGE_CHECK(o.jit_level <= 2, Value, "lite: jit_level is 0, 1 or 2; got {}.", static_cast<int>(o.jit_level));
  MGE_CHECK(o.graph_opt_level <= 3, Value, "lite: graph_opt_level is 0 to 3; got {}.",
            static_cast<int>(o.graph_opt_level));
  MGE_CHECK(o.async_exec_level <= 7, Value, "lite: async_exec_level is 0 to 7; got {}.", o.async_exec_level);
  MGE_CHECK(!(o.force_dynamic_alloc && o.comp_node_seq_record_level), Value,
            "lite: force_dynamic_alloc and comp_node_seq_record_level {} exclude each other: recorded memory stays.",
            static_cast<int>(o.comp_node_seq_record_level));
  MGE_CHECK(!(shares_memory && o.comp_node_seq_record_level), NotImplemented,
            "lite: comp_node_seq_record_level {} keeps the memory of its runs, so that it cannot be shared with "
            "another network. Use level 0, or do not call share_runtime_memory_with.",
            static_cast<int>(o.comp_node_seq_record_level));
  MGE_CHECK(!(async_callback && o.force_output_use_user_specified_memory), Value,
            "lite: an async callback cannot be used with force_output_use_user_specified_memory.");
}

// What the file was dumped with, and on top of it what the options of this network ask for.
mge::pass::InferenceOptions Network::Impl::inference_options(const mge::serial::LoadedModel& m) const {
  using mge::pass::InferenceOptions;
  InferenceOptions dumped;
  for (auto& [key, value] : m.info.metadata)
    if (uint64_t word = 0; key == "optimize_options") {
      auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), word);
      MGE_CHECK(error == std::errc() && end == value.data() + value.size(), Value,
                "lite: optimize_options of the model is a number; got '{}'.", value);
      dumped = InferenceOptions::from_word(word);
    }
  const Options& o = config.options;
  using mge::pass::LayoutTarget;
  const struct {
    const char* name;
    bool on;
    LayoutTarget target;
  } layouts[] = {
      {"enable_nchw44", o.enable_nchw44, LayoutTarget::NCHW44},
      {"enable_nchw44_dot", o.enable_nchw44_dot, LayoutTarget::NCHW44_DOT},
      {"enable_nchw88", o.enable_nchw88, LayoutTarget::NCHW88},
      {"enable_nhwcd4", o.enable_nhwcd4, LayoutTarget::NHWCD4},
      {"enable_nchw4", o.enable_nchw4, LayoutTarget::NCHW4},
      {"enable_nchw32", o.enable_nchw32, LayoutTarget::NCHW32},
      {"enable_nchw64", o.enable_nchw64, LayoutTarget::NCHW64},
  };
  InferenceOptions asked;
  const char* layout = nullptr;
  for (auto& l : layouts) {
    if (!l.on) continue;
    MGE_CHECK(!layout, Value, "lite: of the layout options only one may be on; got {} and {}.", layout, l.name);
    layout = l.name;
    asked.layout = l.target;
  }
  if (o.enable_f16_io_comp) mge::require("half_io", "lite: enable_f16_io_comp");
  if (o.fuse_preprocess) mge::require("fuse_preprocess", "lite: fuse_preprocess");
  asked.fuse_grain = true;
  asked.f16_io_comp = o.enable_f16_io_comp;
  asked.weight_preprocess = o.weight_preprocess || dumped.weight_preprocess || config.auto_optimize_inference;
  asked.winograd4 = dumped.winograd4;
  asked.fuse_preprocess = o.fuse_preprocess;
  const std::string_view others = mge::pass::layout_of_others(asked.layout);
  MGE_CHECK(
      others.empty(), NotImplemented,
      "lite: {} is a layout for {}; this device has none of them. Leave it out: memory orders are chosen by cost, "
      "and enable_nchw44 or enable_nchw88 pack weights as well.",
      layout, others);
  if (asked.layout == mge::pass::LayoutTarget::Default) asked.layout = dumped.layout;
  return asked;
}

// What a packed model says about the network. The rest of it came with the configuration.
void Network::Impl::apply(const ModelInfo& info) {
  config = info.config;
  network_io = info.io;
  extra_info = info.extra_info;
  for (auto& [key, value] : info.isolated) {
    if (key == "device_id") {
      config.device_id = value.safe_cast<int32_t>();
    } else if (key == "number_threads") {
      threads = value.safe_cast<uint32_t>();
      MGE_CHECK(threads >= 1 && threads <= 256, Value, "model info: number_threads must be 1..256; got {}.", threads);
    } else if (key == "enable_inplace_model") {
      inplace = value.safe_cast<bool>();
    } else if (key == "use_tensorrt") {
      MGE_CHECK(!value.safe_cast<bool>(), NotImplemented,
                "model info: use_tensorrt: TensorRT needs a GPU, and this library runs on the CPU. Load the model with "
                "disable_configure_by_model_info.");
    } else {
      log(WARN, mge::format("lite: the model's info says '{}', which this library does not know", key));
    }
  }
}

// Runs of the old model end first. It comes back, settings and all, when there is no new one.
void Network::Impl::replace_model(const std::function<void()>& load) {
  if (!inside_callback()) drain();
  const std::lock_guard lock(mutex);
  const mge::ForkWaits waits;
  MGE_CHECK(!in_forward_, Assertion,
            "lite: a model was loaded from a callback of the same network. Call it after forward has returned.");
  const Asked before(config, network_io, threads, inplace);
  const std::optional<Asked> asked = asked_;
  auto old = std::tuple(std::exchange(model, nullptr), std::exchange(engine, nullptr), std::exchange(inputs, {}),
                        std::exchange(outputs, {}), std::exchange(extra_info, {}), std::exchange(const_inputs_, {}));
  try {
    if (asked_) std::tie(config, network_io, threads, inplace) = *std::exchange(asked_, std::nullopt);
    load();
    finished_ = false;
    memory_info.clear();
  } catch (...) {
    std::tie(config, network_io, threads, inplace) = before;
    asked_ = asked;
    std::tie(model, engine, inputs, outputs, extra_info, const_inputs_) = std::move(old);
    throw;
  }
}

void Network::Impl::load(const std::function<ModelBytes()>& source) {
  replace_model([&] {
    Loaded loaded = load_bytes(source(), config, network_io, !extra.disable_configure_by_model_info);
    if (mge::has("packs") && loaded.packed) {
      asked_.emplace(config, network_io, threads, inplace);
      apply(loaded.info);
    }
    take(std::make_shared<const mge::serial::LoadedModel>(std::move(loaded.model)));
  });
}

void Network::Impl::load_shared(std::shared_ptr<const mge::serial::LoadedModel> m) {
  replace_model([&] { take(std::move(m)); });
}

EngineOptions Network::Impl::engine_options(const mge::serial::LoadedModel& m) const {
  EngineOptions opt;
  opt.opt_level = config.options.graph_opt_level;
  opt.record_level = config.options.comp_node_seq_record_level;
  opt.inference = inference_options(m);
  opt.jit_level = config.options.jit_level;
  opt.const_shape = config.options.const_shape;
  opt.dynamic_alloc = config.options.force_dynamic_alloc;
  opt.verify = config.options.var_sanity_check_first_run;
  opt.strategy = strategy;
  opt.shared_batch = shared_batch;
  opt.tune_once = config.options.no_profiling_on_shape_change;
  if (only_configured_outputs) {
    MGE_CHECK(!network_io.outputs.empty(), Value,
              "lite: compute_only_configured_output needs NetworkIO.outputs; outputs of this model: {}.", [&] {
                std::string names;
                for (auto& o : m.graph.outputs()) names += (names.empty() ? "" : ", ") + o.name;
                return names;
              }());
    for (const IO& io : network_io.outputs) opt.outputs.push_back(io.name);
  }
  opt.share_memory = share_memory;
  MGE_CHECK(
      profile_path.empty() || opt.record_level < 2, Value,
      "lite: profiles need the graph, which comp_node_seq_record_level 2 drops after the first forward. Use level "
      "1.");
  if (shows_values()) {
    MGE_CHECK(opt.record_level < 2, Value,
              "lite: dumps of values need the graph, which comp_node_seq_record_level 2 drops after the first forward. "
              "Use level 1.");
    opt.every_value = true;
    opt.opt_level = 0;  // what the passes merge would be missing from the dump
  }
  return opt;
}

void Network::Impl::show_values() {
  mge::require("value_dumps", "lite: dumps of values");
  if (!engine) return;
  MGE_CHECK(!engine->dropped(), Assertion,
            "lite: the network has dropped its model after its first forward (comp_node_seq_record_level=2). Ask for "
            "dumps before that, or use level 1.");
  const mge::UseMemory use(memory);
  engine = std::make_unique<Engine>(model, engine_options(*model));
  if (!profile_path.empty()) engine->watch(true);
  prepare_again();
}

void Network::Impl::take(std::shared_ptr<const mge::serial::LoadedModel> m) {
  check_config();
  MGE_CHECK(
      m->info.preprocess.empty(), NotImplemented,
      "lite: the model has a pre-processing section, whose steps this library does not run. Make them part of the "
      "traced function and dump it again.");
  const EngineOptions opt = engine_options(*m);
  const mge::UseMemory use(memory);
  model = std::move(m);
  engine = std::make_unique<Engine>(model, opt);
  if (!profile_path.empty()) engine->watch(true);
  make_slots();
  prepare_first();
  make_discrete();
  if (extra_info.empty()) {
    JsonWriter json;
    for (auto& [key, value] : model->info.metadata) json.member(key, value);
    extra_info = json.str();
  }
}

// Shapes that NetworkIO gives to some inputs may want others of the rest, which the program sets after the load.
void Network::Impl::prepare_first() {
  const mge::ThreadLimit limit(static_cast<int>(threads));
  const std::vector<Meta> metas = input_metas();
  if (config.options.const_shape) check_const_shape(metas);
  const auto configured = [](const IoSlot& s) { return s.io.config_layout.ndim > 0; };
  const bool some = std::ranges::any_of(inputs, configured), all = std::ranges::all_of(inputs, configured);
  try {
    engine->prepare(metas);
    set_output_layouts();
  } catch (const mge::Error& e) {
    if (config.options.const_shape || !some || all) throw;
    log(INFO, mge::format("lite: the shapes of NetworkIO alone do not fit: {}", e.what()));
  }
}

void Network::Impl::make_slots() {
  auto configured = [](const std::vector<IO>& given, const std::string& name) {
    for (const IO& io : given)
      if (io.name == name) return io;
    return IO{.name = name};
  };
  auto make = [&](std::vector<IoSlot>& slots, const std::vector<IO>& given, const std::string& name, const char* what,
                  const Meta& m) {
    IoSlot s{configured(given, name), nullptr, {}, m, static_cast<int>(slots.size())};
    s.io.is_host = true;  // host and device are the same memory on a CPU
    auto impl = std::make_shared<Tensor::Impl>();
    impl->device_id = config.device_id;
    impl->set_layout(to_lite(m, mge::format("{} '{}'", what, name)));
    s.tensor = TensorAccess::make(std::move(impl));
    slots.push_back(std::move(s));
  };
  const mge::Graph& g = engine->graph();
  for (auto v : g.inputs()) {
    make(inputs, network_io.inputs, g.value(v).name, "input", g.meta(v));
    if (inputs.back().io.config_layout.ndim > 0) inputs.back().tensor->set_layout(inputs.back().io.config_layout);
  }
  // Outputs that dumps added come after the real ones and are not shown.
  size_t shown = only_configured_outputs ? network_io.outputs.size() : model->graph.outputs().size();
  for (size_t i = 0; i < std::min(shown, g.outputs().size()); ++i)
    make(outputs, network_io.outputs, g.outputs()[i].name, "output", g.meta(g.outputs()[i].value));

  auto warn_unknown = [](const std::vector<IO>& given, const std::vector<IoSlot>& slots, const char* what) {
    for (const IO& io : given)
      if (std::none_of(slots.begin(), slots.end(), [&](const IoSlot& s) { return s.io.name == io.name; }))
        log(WARN, mge::format("lite: NetworkIO names {} '{}', which the model does not have; its {}s are {}.", what,
                              io.name, what, list(slots)));
  };
  warn_unknown(network_io.inputs, inputs, "input");
  warn_unknown(network_io.outputs, outputs, "output");
}

IoSlot& Network::Impl::find_io(const std::string& name, LiteTensorPhase phase) {
  check_loaded("get_io_tensor");
  MGE_CHECK(phase >= LITE_IO && phase <= LITE_OUTPUT, Value, "lite: {} is no LiteTensorPhase.",
            static_cast<int>(phase));
  if (phase != LITE_OUTPUT)
    for (IoSlot& s : inputs)
      if (s.io.name == name) return s;
  if (phase != LITE_INPUT)
    for (IoSlot& s : outputs)
      if (s.io.name == name) return s;
  const char* what = phase == LITE_INPUT ? "input" : phase == LITE_OUTPUT ? "output" : "input or output";
  mge::fail(mge::ErrorKind::Index, "lite: the model has no {} '{}'. Inputs: {}. Outputs: {}.", what, name, list(inputs),
            list(outputs));
}

// ---- discrete inputs: a batch whose elements lie in memory of their own

void Network::Impl::make_discrete() {
  const std::string& name = config.discrete_input_name;
  if (name.empty()) return;
  auto it = std::find_if(inputs.begin(), inputs.end(), [&](const IoSlot& s) { return s.io.name == name; });
  MGE_CHECK(it != inputs.end(), Value, "lite: discrete_input_name is '{}'; inputs of the model are {}.", name,
            list(inputs));
  Layout l = it->tensor->get_layout();
  MGE_CHECK(l.ndim > 1, Value, "lite: discrete_input_name: input '{}' {} is no batch.", name, layout_text(l));
  const size_t batch = l.shapes[0];
  l.shapes[0] = 1;
  for (size_t i = 0; i < batch; ++i) {
    auto impl = std::make_shared<Tensor::Impl>();
    impl->device_id = config.device_id;
    impl->set_layout(l);
    it->discrete.push_back(TensorAccess::make(std::move(impl)));
  }
}

std::vector<std::shared_ptr<Tensor>> Network::Impl::discrete_tensors(const IoSlot& slot) const {
  MGE_CHECK(!slot.discrete.empty(), Value,
            "lite: '{}' is no discrete input; Config.discrete_input_name is '{}'. Use get_io_tensor, or name it there.",
            slot.io.name, config.discrete_input_name);
  return slot.discrete;
}

const std::shared_ptr<Tensor>& Network::Impl::tensor_of(const IoSlot& slot) const {
  MGE_CHECK(slot.discrete.empty(), Value,
            "lite: '{}' is a discrete input (Config.discrete_input_name): it has {} tensors. Use get_discrete_tensors.",
            slot.io.name, slot.discrete.size());
  return slot.tensor;
}

void Network::Impl::gather_discrete() const {
  for (const IoSlot& s : inputs) {
    if (s.discrete.empty()) continue;
    Tensor::Impl& all = TensorAccess::impl(*s.tensor);
    const size_t bytes = all.layout.ndim ? layout_bytes(all.layout) / std::max<size_t>(s.discrete.size(), 1) : 0;
    char* to = static_cast<char*>(all.ptr());
    for (auto& part : s.discrete) {
      Layout want = all.layout;
      want.shapes[0] = 1;
      const Layout got = part->get_layout();
      MGE_CHECK(got == want, Value, "lite: a tensor of the discrete input '{}' is {}; it must be {}.", s.io.name,
                layout_text(got), layout_text(want));
      Tensor::Impl place;
      place.set_layout(want);
      place.adopt(to, bytes);
      std::lock_guard lock(TensorAccess::impl(*part).mutex);
      place.copy_from(TensorAccess::impl(*part));
      to += bytes;
    }
  }
}

// ---- how kernels are chosen, and what the result is

void Network::Impl::prepare_again() {
  const mge::ThreadLimit limit(static_cast<int>(threads));
  const mge::UseMemory use(memory);
  engine->prepare(input_metas());
  if (engine->knows_outputs()) set_output_layouts();
}

void Network::Impl::set_algo_policy(uint32_t policy, uint32_t batch, bool same_bits) {
  MGE_CHECK((policy & ~15u) == 0, Value, "lite: {} is no combination of LiteAlgoSelectStrategy.", policy);
  if ((policy & (LITE_ALGO_PROFILE | LITE_ALGO_REPRODUCIBLE)) || batch || same_bits)
    mge::require("fast_run", "lite: set_network_algo_policy");
  // Kernels that are not optimised are asked last anyway, so LITE_ALGO_OPTIMIZED asks for nothing more.
  if (policy) strategy = policy & (LITE_ALGO_HEURISTIC | LITE_ALGO_PROFILE | LITE_ALGO_REPRODUCIBLE);
  if (!(strategy & 3u)) strategy |= mge::kHeuristic;
  shared_batch = batch;
  if (batch || same_bits) strategy |= mge::kAnyBatch;
  if (same_bits) strategy |= mge::kReproducible;
  if (!engine) return;
  log(WARN, "lite: set_network_algo_policy after load_model: the network is compiled again");
  engine->set_strategy(strategy, shared_batch);
  prepare_again();
}

void Network::Impl::set_workspace_limit(size_t bytes) {
  mge::require("fast_run", "lite: set_network_algo_workspace_limit");
  check_loaded("set_network_algo_workspace_limit");
  engine->set_workspace(bytes);
  prepare_again();
}

// Memory of runs comes from the pool of the process and goes back to it after each, so networks that run one after the
// other use the same; a recorded run keeps its own.
void Network::Impl::share_runtime_memory(const Impl& src) {
  MGE_CHECK(src.config.options.comp_node_seq_record_level == 0, NotImplemented,
            "lite: share_runtime_memory_with: the other network keeps the memory of its runs "
            "(comp_node_seq_record_level {}). Use level 0 for both.",
            static_cast<int>(src.config.options.comp_node_seq_record_level));
  MGE_CHECK(config.options.comp_node_seq_record_level == 0, NotImplemented,
            "lite: share_runtime_memory_with: comp_node_seq_record_level {} keeps the memory of its runs. Use level 0 "
            "for both.",
            static_cast<int>(config.options.comp_node_seq_record_level));
  shares_memory = true;
  memory = src.memory;
}

void Network::Impl::write_optimised(const std::string& path) const {
  check_loaded("dump_layout_transform_model");
  MGE_CHECK(layout_transform, Assertion,
            "lite: dump_layout_transform_model needs enable_global_layout_transform before load_model.");
  MGE_CHECK(!engine->dropped(), Assertion,
            "lite: dump_layout_transform_model: comp_node_seq_record_level 2 has dropped the graph. Dump before the "
            "first forward, or use level 1.");
  MGE_CHECK(!path.empty(), Value, "lite: dump_layout_transform_model needs the name of a file.");
  write_graph(path);
}

void Network::Impl::write_graph(const std::string& path) const {
  mge::require("writing", "lite: a graph as a file");
  mge::serial::ModelInfo info = model->info;
  for (auto& [key, value] : info.metadata)
    if (key == "optimized_for_inference") value = "1";
  if (!shows_values()) return mge::serial::write_model_file(path, engine->graph(), info);
  EngineOptions opt = engine_options(*model);  // dumps have made every value an output
  opt.every_value = false;
  opt.opt_level = config.options.graph_opt_level;
  mge::serial::write_model_file(path, Engine(model, opt).graph(), info);
}

IoSlot& Network::Impl::at(std::vector<IoSlot>& slots, size_t index, const char* what) {
  check_loaded("looking up inputs and outputs");
  MGE_CHECK(index < slots.size(), Index, "lite: {} {} of {}; they are {}.", what, index, slots.size(), list(slots));
  return slots[index];
}

// ---- running

const Meta& Network::Impl::input_meta(IoSlot& s) const {
  const Layout& l = TensorAccess::impl(*s.tensor).layout;
  if (l.ndim > 0 && l == s.seen) return s.now;
  MGE_CHECK(same_storage(l.data_type, s.meta.dtype), Type,
            "lite: input '{}' is {} in the model; its tensor is {}. Convert the data first (NumPy: astype(\"{}\")).",
            s.io.name, s.meta.str(), layout_text(l), mge::dtype_name(s.meta.dtype));
  MGE_CHECK(l.ndim > 0, Value, "lite: input '{}' has no layout.", s.io.name);
  Meta m = s.meta;
  m.shape = to_shape(l, s.meta.shape.rank);
  mge::check_shape("lite", m.shape);
  s.now = m;
  s.seen = l;
  return s.now;
}

std::vector<Meta> Network::Impl::input_metas() {
  std::vector<Meta> out;
  for (IoSlot& s : inputs) {
    const std::lock_guard lock(TensorAccess::impl(*s.tensor).mutex);
    out.push_back(input_meta(s));
  }
  return out;
}

// Fills metas_, too.
std::vector<Buffer> Network::Impl::take_inputs() {
  std::vector<Buffer> out;
  out.reserve(inputs.size());
  metas_.clear();
  for (IoSlot& s : inputs) {
    Tensor::Impl& t = TensorAccess::impl(*s.tensor);
    const Meta& m = metas_.emplace_back(input_meta(s));
    void* p = t.ptr();
    const size_t bytes = std::max<size_t>(m.bytes(), 1);
    // An output that is the input itself may outlive the tensor's memory where results are not copied.
    if (config.options.force_output_dynamic_alloc)
      s.given = mge::wrap_storage(p, bytes, false, [keep = t.memory] {});
    else if (!s.given || s.given->ptr != p || s.given->bytes != bytes)
      s.given = mge::wrap_storage(p, bytes, false, {});
    Buffer& b = out.emplace_back(Buffer{s.given, mge::Layout::contiguous(m.shape)});
    bool aligned = reinterpret_cast<uintptr_t>(p) % std::max<size_t>(mge::dtype_size(m.dtype), 1) == 0;
    const bool backwards = std::any_of(t.stride, t.stride + t.layout.ndim, [](int64_t s) { return s < 0; });
    if (!aligned || backwards) {  // a kernel may load words, and starts at the first byte
      Buffer copy = mge::allocate_buffer(m);
      Tensor::Impl place;
      place.set_layout(t.layout);
      place.adopt(copy.storage->ptr, m.bytes());
      place.copy_from(t);
      b = std::move(copy);
    } else if (!t.contiguous()) {
      for (int d = 0; d < m.shape.rank; ++d) b.layout.stride[d] = t.stride[d];
    }
  }
  return out;
}

void Network::Impl::set_output_layouts() {
  for (IoSlot& s : outputs) {
    const auto i = static_cast<size_t>(s.graph_index);
    // Of sizes that depend on values, those of the recorded call stand there until the first run.
    const Meta& m = engine->knows_outputs() ? engine->output_meta(i) : engine->recorded_output_meta(i);
    const std::lock_guard lock(TensorAccess::impl(*s.tensor).mutex);
    Tensor::Impl& t = TensorAccess::impl(*s.tensor);
    if (is_layout_of(t.layout, m)) continue;
    // Who gave this memory expects the output there.
    MGE_CHECK(
        !(t.memory && t.memory->from_user() && t.whole() && m.bytes() > t.memory->bytes), Value,
        "lite: output '{}' is {} and needs {} bytes; the memory given by reset has {}. Call reset with more memory "
        "and this layout.",
        s.io.name, m.str(), m.bytes(), t.memory->bytes);
    t.set_layout(to_lite(m, mge::format("output '{}'", s.io.name)));
  }
}

void Network::Impl::store_output(IoSlot& slot, const Meta& m, const Buffer& value) {
  if (slot.io.io_type == LITE_IO_SHAPE) return;
  Tensor::Impl& t = TensorAccess::impl(*slot.tensor);
  const void* from = value.data(m.dtype);
  size_t bytes = m.bytes();
  if (config.options.force_output_dynamic_alloc && !(t.memory && t.memory->from_user())) {
    auto memory = std::make_shared<Memory>();
    memory->storage = value.storage;
    memory->ptr = const_cast<void*>(from);
    memory->bytes = bytes;
    t.adopt(std::move(memory));
    return;
  }
  MGE_CHECK(
      !config.options.force_output_use_user_specified_memory || (t.memory && t.memory->from_user()), Value,
      "lite: force_output_use_user_specified_memory is set, but output '{}' has no memory. Call reset on its tensor.",
      slot.io.name);
  if (t.contiguous()) {
    void* to = t.ptr();
    if (bytes) std::memmove(to, from, bytes);  // an output that is an input may share its memory
    return;
  }
  Tensor::Impl source;  // a view: a slice of memory the user shares with the output
  source.set_layout(t.layout);
  source.adopt(const_cast<void*>(from), bytes);
  t.copy_from(source);
}

// Where sizes vary with values nothing was compiled yet; the shapes of the file, or configured ones, hold there, too.
void Network::Impl::check_const_shape(const std::vector<Meta>& metas) {
  if (const_inputs_.empty()) const_inputs_ = metas;
  for (size_t i = 0; i < metas.size(); ++i)
    MGE_CHECK(metas[i].same_type(const_inputs_[i]), Value,
              "lite: input '{}' is {} now and was {} when the model was loaded; Options.const_shape promised that it "
              "would not change. Load without const_shape.",
              inputs[i].io.name, metas[i].str(), const_inputs_[i].str());
}

namespace {
void write_json(const std::string& path, const std::string& text) {
  mge::FileWriter f(path);
  f.write(text.data(), text.size());
  f.commit();
}
}  // namespace

// An op's own words do not say that the number of dimensions is what changed.
void Network::Impl::prepare_run() {
  try {
    engine->prepare(metas_);
  } catch (const mge::Error& e) {
    for (size_t i = 0; i < metas_.size(); ++i)
      if (metas_[i].shape.rank != inputs[i].meta.shape.rank)
        mge::fail(e.kind(),
                  "{}\n  Input '{}' is {}, and was {} when the model was made: another number of dimensions "
                  "works only where all ops take it.",
                  e.what(), inputs[i].io.name, metas_[i].str(), inputs[i].meta.str());
    throw;
  }
}

void Network::Impl::run_once() {
  const mge::ThreadLimit limit(static_cast<int>(threads));
  const mge::UseMemory use(memory);
  // Other threads find inputs and outputs as they were before the run or as they are after it.
  TensorLocks::List tensors;
  for (auto* slots : {&inputs, &outputs})
    for (const IoSlot& s : *slots) tensors.push_back(&TensorAccess::impl(*s.tensor));
  const TensorLocks locks(std::move(tensors));
  const bool fake = std::exchange(config.options.fake_next_exec, false);
  std::vector<Buffer> in;
  if (fake) {
    metas_ = input_metas();
  } else {
    gather_discrete();
    in = take_inputs();
  }
  if (config.options.const_shape) check_const_shape(metas_);
  prepare_run();
  if (engine->knows_outputs()) set_output_layouts();
  if (fake) return;
  const bool known = engine->knows_outputs();
  // Where a run changes the model's state, memory for outputs comes first: results without a place would have changed
  // it for nothing. Elsewhere the program fails first, and names the op that lacks memory.
  const auto& vars = model->graph.vars();
  const bool changes = std::ranges::any_of(vars, [](const mge::ir::Var& v) { return v.out != mge::ir::kNone; });
  if (known && changes && !config.options.force_output_dynamic_alloc)
    for (const IoSlot& s : outputs)
      if (s.io.io_type != LITE_IO_SHAPE) TensorAccess::impl(*s.tensor).ptr();
  std::vector<Buffer> results = engine->run(std::move(in));
  if (engine->dropped() && model->graph.n_values()) model = std::make_shared<const mge::serial::LoadedModel>();
  if (!known || engine->sizes_vary()) set_output_layouts();
  for (IoSlot& s : outputs) {
    auto i = static_cast<size_t>(s.graph_index);
    store_output(s, engine->output_meta(i), results[i]);
  }
  if (shows_values()) dump_values(results, outputs.size());
  if (mge::has("profiling") && !profile_path.empty()) write_json(profile_path, mge::profile_json(engine->latest()));
  if (mge::has("profiling") && !memory_info.empty()) write_memory_info(memory_info);
}

void Network::Impl::enable_profile(std::string path) {
  mge::require("profiling", "lite: enable_profile_performance");
  MGE_CHECK(!path.empty(), Value, "lite: enable_profile_performance needs the name of a file.");
  MGE_CHECK(
      !engine || config.options.comp_node_seq_record_level < 2, Value,
      "lite: enable_profile_performance needs the graph, which comp_node_seq_record_level 2 drops after the first "
      "forward. Use level 1.");
  profile_path = std::move(path);
  if (engine) engine->watch(true);
}

void Network::Impl::write_memory_info(const std::string& folder) const {
  mge::require("profiling", "lite: get_static_memory_alloc_info");
  check_loaded("get_static_memory_alloc_info");
  MGE_CHECK(!folder.empty(), Value, "lite: get_static_memory_alloc_info needs the name of a folder.");
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) MGE_FAIL_ENV("lite: get_static_memory_alloc_info: cannot make {}: {}.", folder, failed.message());
  const auto programs = engine->latest();
  write_json(folder + "/graph.json",
             programs.empty() ? mge::graph_json(engine->graph()) : mge::graph_exec_json(programs));
  // Where sizes depend on values there is no plan before the first run.
  memory_info = programs.empty() ? folder : "";
  if (!programs.empty()) write_json(folder + "/StaticMemoryInfo.json", mge::static_memory_json(programs));
}

void Network::Impl::dump_values(const std::vector<Buffer>& values, size_t first) {
  const mge::Graph& g = engine->graph();
  std::vector<DumpedValue> list;
  std::map<mge::ir::ValueId, int> ids;
  for (size_t i = first; i < values.size(); ++i) ids[g.outputs()[i].value] = static_cast<int>(i - first);
  for (size_t i = first; i < values.size(); ++i) {
    const mge::ir::Output& o = g.outputs()[i];
    const Meta& m = engine->output_meta(i);
    const mge::ir::Node& node = g.node(g.value(o.value).producer);
    list.push_back(
        {static_cast<int>(i - first), o.name, node.op->name, g.location(node.loc).str(), m, values[i].data(m.dtype)});
    for (auto v : node.inputs)
      if (auto it = ids.find(v); it != ids.end())
        list.back().inputs.emplace_back(it->second, g.outputs()[first + static_cast<size_t>(it->second)].name);
    list.back().opr = g.value(o.value).producer;
    list.back().moves = engine->sizes_vary();
  }
  if (!text_dump.empty()) write_text_dump(text_dump, list, dumps_ > 0);
  if (!bin_dump.empty()) write_binary_dump(bin_dump, list);
  if (on_values) on_values(list);
  ++dumps_;
}

void Network::Impl::call_finish() {
  FinishCallback callback;
  {
    std::lock_guard lock(mutex);
    if (std::exchange(finished_, false)) callback = finish_callback;
  }
  if (callback) outside([&] { callback(io_map(outputs)); });
}

Worker* Network::Impl::worker() {
  if (mutex.lost()) return nullptr;  // nor can it be asked for
  std::lock_guard lock(mutex);
  if (worker_ && worker_->lost()) worker_ = nullptr;
  return worker_.get();
}
bool Network::Impl::inside_callback() const {
  Worker* w = const_cast<Impl*>(this)->worker();
  return w && w->on_this_thread();
}
void Network::Impl::drain() {
  if (Worker* w = worker()) w->drain();
}
// A run that begins later would have the network go with its last caller, who must not wait for it inside a callback of
// another network: the run may wait for that one.
void Network::Impl::close() {
  closed_ = true;
  try {
    if (Worker* w = worker()) w->close();
  } catch (...) {
    closed_ = false;
    throw;
  }
}

void Network::Impl::set_async_callback(const AsyncCallback& callback) {
  std::unique_lock lock(mutex);
  MGE_CHECK(!inplace, Assertion, "lite: an async callback cannot be used in CPU in-place mode.");
  MGE_CHECK(!config.options.force_output_use_user_specified_memory, Value,
            "lite: an async callback cannot be used with force_output_use_user_specified_memory.");
  const bool loaded = model != nullptr;
  lock.unlock();
  if (loaded) wait();
  lock.lock();
  async_callback = callback;
}

// On a thread of its own: with an async callback, or when async_exec_level says always.
bool Network::Impl::runs_aside() const { return async_callback || ((config.options.async_exec_level & 4) && !inplace); }

void Network::Impl::forward() {
  std::unique_lock lock(mutex);
  check_loaded("forward");
  const StartCallback start = start_callback;  // a copy: the callback may set another
  if (!runs_aside()) {
    MGE_CHECK(!std::exchange(in_forward_, true), Assertion,
              "lite: forward was called from a callback of the same network. Call it after forward has returned.");
    struct Leave {
      bool& flag;
      ~Leave() { flag = false; }
    } leave{in_forward_};
    if (start) outside([&] { start(io_map(inputs)); });
    run_once();
    finished_ = true;
    return;
  }
  const Worker* there = worker();
  MGE_CHECK(!there || !there->on_this_thread(), Assertion,
            "lite: forward was called from a callback of the same network. Call it from another thread, after wait.");
  check_open(closed_);
  if (!worker_) worker_ = std::make_unique<Worker>();
  Worker& w = *worker_;
  const AsyncCallback done = async_callback;
  lock.unlock();
  w.wait();
  if (start) outside([&] { start(io_map(inputs)); });
  w.post([this, done, self = shared_from_this()] {  // the callback may destroy the network
    std::exception_ptr error;
    try {
      std::lock_guard running(mutex);
      run_once();
      finished_ = true;
    } catch (...) {
      error = std::current_exception();
    }
    if (done) outside(done);  // also after a failure, which wait() reports: whoever waits for it must not wait forever
    if (error) std::rethrow_exception(error);
    if (done) call_finish();  // without a callback wait() does it
  });
}

void Network::Impl::wait() {
  std::unique_lock lock(mutex);
  check_loaded("wait");
  Worker* w = worker();
  if (!w && !finish_callback) {  // nothing to wait for, nobody to tell
    finished_ = false;
    return;
  }
  lock.unlock();
  if (w && w->on_this_thread()) return;
  if (w) w->wait();
  call_finish();
}

NetworkIO io_of(const mge::serial::LoadedModel& m) {
  NetworkIO out;
  const mge::Graph& g = m.graph;
  for (auto v : g.inputs())
    out.inputs.push_back({.name = g.value(v).name, .config_layout = to_lite(g.meta(v), g.value(v).name)});
  for (auto& o : g.outputs())
    out.outputs.push_back({.name = o.name, .config_layout = to_lite(g.meta(o.value), o.name)});
  return out;
}

}  // namespace lite
