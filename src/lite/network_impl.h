// A network: configuration before load; model, engine and io tensors after it; at most one worker thread in async mode.
// Threads may share a network: each call has it for itself (mutex), so that runs follow each other. The table of C
// handles is locked inside a call, never around one.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/features.h"
#include "core/memory_source.h"
#include "lite/engine.h"
#include "lite/error.h"
#include "lite/load.h"
#include "lite/network.h"
#include "lite/run/dump.h"
#include "lite/worker.h"

namespace lite {

struct IoSlot {
  IO io;
  std::shared_ptr<Tensor> tensor;
  std::vector<std::shared_ptr<Tensor>> discrete;  // of Config.discrete_input_name: one for each element of the batch
  mge::Meta meta;                                 // in the file
  int graph_index = 0;                            // position among the graph's inputs or outputs

  // Of an input, kept from run to run: the layout that was looked at last, what it says, and the memory as programs
  // are given it. The memory itself belongs to the tensor, which is locked while a program runs.
  Layout seen;
  mge::Meta now;
  mge::RefPtr<mge::Storage> given;
};

class LITE_HIDDEN Network::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const Config& c, const NetworkIO& io) : config(c), network_io(io) {}
  ~Impl();

  // These take the mutex themselves, and the place of the model that there is; after an error that one stays.
  void load(const std::function<ModelBytes()>& source);
  void load_shared(std::shared_ptr<const mge::serial::LoadedModel> model);
  EngineOptions engine_options(const mge::serial::LoadedModel& m) const;
  void show_values();  // dumps were asked for: a loaded network is compiled again, with every value as an output
  void check_not_loaded(const char* what) const;
  void check_loaded(const char* what) const;

  IoSlot& find_io(const std::string& name, LiteTensorPhase phase);
  std::vector<std::shared_ptr<Tensor>> discrete_tensors(const IoSlot& slot) const;
  /// The one tensor of an input or output; a discrete input has several.
  const std::shared_ptr<Tensor>& tensor_of(const IoSlot& slot) const;
  IoSlot& at(std::vector<IoSlot>& slots, size_t index, const char* what);

  // These take the mutex themselves: who waits for the worker must not hold it.
  void forward();
  void wait();
  /// Times from the next run on are written to this file after each.
  void enable_profile(std::string path);
  void write_memory_info(const std::string& folder) const;
  void set_algo_policy(uint32_t strategy, uint32_t shared_batch, bool same_bits);
  void set_workspace_limit(size_t bytes);
  void share_runtime_memory(const Impl& src);
  void write_optimised(const std::string& path) const;
  void write_graph(const std::string& path) const;  // as it was optimised at load, without what dumps added
  void set_async_callback(const AsyncCallback& callback);
  /// Whether this is the thread on which an async callback runs.
  bool inside_callback() const;
  /// Until no async run is under way.
  void drain();
  /// Before the network goes: no more async runs, and none is under way. When it throws the network stays.
  void close();

  /// Held by every call, also while a start callback runs: it may call the network again.
  mutable CallMutex mutex;

  Config config;
  NetworkIO network_io;
  ExtraConfig extra;
  bool only_configured_outputs = false;
  size_t threads = 1;
  bool inplace = false;
  int stream_id = 0;
  uint32_t strategy = mge::kHeuristic;                             // of kernel/tune.h
  uint32_t shared_batch = 0;                                       // fast-run measures with this batch size
  bool layout_transform = false;                                   // dump_layout_transform_model may be asked for
  bool shares_memory = false;                                      // of its runs, with another network
  std::shared_ptr<mge::MemorySource> memory;                       // null: the pool
  std::string text_dump, bin_dump;                                 // where every value goes, when set
  std::string profile_path;                                        // where the times of the last run go, when set
  mutable std::string memory_info;                                 // folder that waits for the first run
  std::function<void(const std::vector<DumpedValue>&)> on_values;  // sees every value of each run, when set
  bool share_memory = true;                                        // false: no value reuses another's (EngineOptions)

  std::shared_ptr<const mge::serial::LoadedModel> model;
  std::unique_ptr<Engine> engine;
  std::vector<IoSlot> inputs, outputs;
  std::string extra_info;

  AsyncCallback async_callback;
  StartCallback start_callback;
  FinishCallback finish_callback;

 private:
  void check_config() const;
  void replace_model(const std::function<void()>& load);
  void take(std::shared_ptr<const mge::serial::LoadedModel> m);
  void prepare_first();
  bool shows_values() const {
    return mge::has("value_dumps") && (!text_dump.empty() || !bin_dump.empty() || on_values);
  }
  void apply(const ModelInfo& info);
  void prepare_again();
  bool runs_aside() const;
  mge::pass::InferenceOptions inference_options(const mge::serial::LoadedModel& m) const;
  void make_slots();
  void make_discrete();
  void gather_discrete() const;
  void check_const_shape(const std::vector<mge::Meta>& metas);
  /// The tensor is locked.
  const mge::Meta& input_meta(IoSlot& slot) const;
  std::vector<mge::Meta> input_metas();
  std::vector<mge::Buffer> take_inputs();
  void set_output_layouts();
  void prepare_run();
  void run_once();
  void store_output(IoSlot& slot, const mge::Meta& m, const mge::Buffer& value);
  void dump_values(const std::vector<mge::Buffer>& values, size_t first);
  void call_finish();

  Worker* worker();  // null: none was needed yet

  using Asked = std::tuple<Config, NetworkIO, size_t, bool>;
  std::optional<Asked> asked_;  // by the program, where a packed model said something else

  std::atomic<bool> closed_{false};  // see close
  bool finished_ = false;            // a forward whose finish callback has not been called yet
  bool in_forward_ = false;          // on the thread that has the mutex
  int dumps_ = 0;
  std::vector<mge::Meta> metas_;         // of the inputs of this run
  std::vector<mge::Meta> const_inputs_;  // of Options.const_shape
  // Made once, so that a pointer to it stays good. The last member: it ends first, and its run uses the others.
  std::unique_ptr<Worker> worker_;
};

struct NetworkAccess {
  static Network::Impl& impl(Network& n) { return *n.impl_; }
};

/// The layouts of a model's inputs and outputs as Lite shows them.
NetworkIO io_of(const mge::serial::LoadedModel& m);

}  // namespace lite
