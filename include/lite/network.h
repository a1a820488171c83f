// Loading and running a model.
//   lite::Network net;
//   net.load_model("lenet.mge");
//   auto x = net.get_io_tensor("data");
//   std::copy(image.begin(), image.end(), static_cast<float*>(x->get_memory_ptr()));
//   net.forward();
//   net.wait();
//   auto y = net.get_io_tensor(net.get_output_name(0));
// Threads may share a network: each call has it for itself, so runs follow each other. Its inputs and outputs are
// shared too; threads that each want their own results use a network each (Runtime::shared_weight_with_network), and
// different networks run at the same time. A network may be destroyed from its own callback: the call that runs it
// ends.
#ifndef LITE_NETWORK_H
#define LITE_NETWORK_H

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lite/tensor.h"

namespace lite {

/// Switches of the loader; docs/lite.md says what each does. load_model refuses numbers that mean nothing.
struct LITE_API Options {
  bool weight_preprocess = false;
  bool fuse_preprocess = false;
  bool fake_next_exec = false;
  bool var_sanity_check_first_run = true;
  bool const_shape = false;
  bool force_dynamic_alloc = false;
  bool force_output_dynamic_alloc = false;
  bool force_output_use_user_specified_memory = false;
  bool no_profiling_on_shape_change = false;
  uint8_t jit_level = 0;
  uint8_t comp_node_seq_record_level = 0;
  uint8_t graph_opt_level = 2;
  uint16_t async_exec_level = 1;
  bool enable_nchw44 = false;
  bool enable_nchw44_dot = false;
  bool enable_nchw88 = false;
  bool enable_nhwcd4 = false;
  bool enable_nchw4 = false;
  bool enable_nchw32 = false;
  bool enable_nchw64 = false;
  bool enable_f16_io_comp = false;
};

struct LITE_API Config {
  bool has_compression = false;
  int device_id = 0;
  LiteDeviceType device_type = LITE_CPU;
  LiteBackend backend = LITE_DEFAULT;
  std::string bare_model_cryption_name = {};
  Options options = {};
  bool auto_optimize_inference = false;
  std::string discrete_input_name = {};
};

struct LITE_API ExtraConfig {
  bool disable_configure_by_model_info = false;
};

struct LITE_API IO {
  std::string name;
  bool is_host = true;
  LiteIOType io_type = LITE_IO_VALUE;
  /// On an input: the shape to load with, when ndim > 0.
  Layout config_layout = {};
};

struct LITE_API NetworkIO {
  std::vector<IO> inputs = {};
  std::vector<IO> outputs = {};
};

class LITE_API Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(LiteDeviceType device_type, int device_id, size_t size, size_t align) = 0;
  virtual void free(LiteDeviceType device_type, int device_id, void* ptr) = 0;
};

using ThreadAffinityCallback = std::function<void(int thread_id)>;
using AsyncCallback = std::function<void()>;
using StartCallback =
    std::function<void(const std::unordered_map<std::string, std::pair<IO, std::shared_ptr<Tensor>>>&)>;
using FinishCallback =
    std::function<void(const std::unordered_map<std::string, std::pair<IO, std::shared_ptr<Tensor>>>&)>;

class LITE_API Network {
 public:
  class Impl;

  Network(const Config& config = {}, const NetworkIO& networkio = {});
  Network(const NetworkIO& networkio, const Config& config = {});
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The bytes are copied; they may go after the call. A second model takes the place of the first, whose tensors are
  /// no longer of this network; after an error the first stays.
  void load_model(void* model_mem, size_t size);
  /// Weights of a large file stay in the mapped file: replace such a file by rename, never in place.
  void load_model(std::string model_path);
  /// Before load: outputs that NetworkIO does not name are not computed.
  void compute_only_configured_output();

  std::shared_ptr<Tensor> get_io_tensor(std::string io_name, LiteTensorPhase phase = LITE_IO);
  /// Of Config.discrete_input_name: one tensor for each element of the batch.
  std::vector<std::shared_ptr<Tensor>> get_discrete_tensors(std::string io_name, LiteTensorPhase phase = LITE_INPUT);
  std::shared_ptr<Tensor> get_input_tensor(size_t index);
  std::vector<std::shared_ptr<Tensor>> get_input_tensors(size_t index);
  std::shared_ptr<Tensor> get_output_tensor(size_t index);

  /// forward() then returns at once and the callback runs on another thread when the outputs are there.
  Network& set_async_callback(const AsyncCallback& async_callback);
  Network& set_start_callback(const StartCallback& start_callback);
  Network& set_finish_callback(const FinishCallback& finish_callback);

  /// Runs with the inputs' present layouts; a shape not seen before is compiled first, then kept.
  void forward();
  void wait();

  std::string get_input_name(size_t index) const;
  std::string get_output_name(size_t index) const;
  std::vector<std::string> get_all_input_name() const;
  std::vector<std::string> get_all_output_name() const;

  Network& set_device_id(int device_id);
  int get_device_id() const;
  Network& set_stream_id(int stream_id);
  int get_stream_id() const;
  void enable_profile_performance(std::string profile_file_path);
  /// The model's metadata as a JSON object.
  const std::string& get_model_extra_info();
  LiteDeviceType get_device_type() const;
  void get_static_memory_alloc_info(const std::string& log_dir = "logs/test") const;
  void extra_configure(const ExtraConfig& extra_config);

 private:
  friend class Runtime;
  friend struct NetworkAccess;
  std::shared_ptr<Impl> impl_;
};

class LITE_API Runtime {
 public:
  Runtime() = delete;

  /// Before load. 1 by default.
  static void set_cpu_threads_number(std::shared_ptr<Network> network, size_t nr_threads);
  static size_t get_cpu_threads_number(std::shared_ptr<Network> network);
  /// After load; called once on each thread that computes, with ids 0..n-1.
  static void set_runtime_thread_affinity(std::shared_ptr<Network> network, const ThreadAffinityCallback& callback);
  static void set_cpu_inplace_mode(std::shared_ptr<Network> network);
  static bool is_cpu_inplace_mode(std::shared_ptr<Network> network);
  /// Refused: TensorRT needs a GPU.
  static void use_tensorrt(std::shared_ptr<Network> network);
  /// Fast-run. Before load, or the network is compiled again. Holds for this network alone; 0 leaves the strategy.
  static void set_network_algo_policy(std::shared_ptr<Network> network, LiteAlgoSelectStrategy strategy,
                                      uint32_t shared_batch_size = 0, bool binary_equal_between_batch = false);
  /// After load. Kernels that need more scratch memory are passed over, unless no other fits.
  static void set_network_algo_workspace_limit(std::shared_ptr<Network> network, size_t workspace_limit);
  /// Before load. Memory of runs comes from there.
  static void set_memory_allocator(std::shared_ptr<Network> network, std::shared_ptr<Allocator> allocator);
  /// Before dst is loaded. Memory of runs is the process's, so networks that run one after the other share it anyway;
  /// refused with a record level, which keeps it.
  static void share_runtime_memory_with(std::shared_ptr<Network> dst, std::shared_ptr<Network> src);
  /// Every value of the graph, as text into one file or as one binary file each, at every forward.
  static void enable_io_txt_dump(std::shared_ptr<Network> network, std::string io_txt_out_file);
  static void enable_io_bin_dump(std::shared_ptr<Network> network, std::string io_bin_out_dir);
  /// `dst` becomes a loaded network with the weights of `src` and memory of its own.
  static void shared_weight_with_network(std::shared_ptr<Network> dst, const std::shared_ptr<Network> src);
  /// Before load. Layouts are chosen in any case; this allows dump_layout_transform_model, which writes the model as
  /// it was optimised at load.
  static void enable_global_layout_transform(std::shared_ptr<Network> network);
  static void dump_layout_transform_model(std::shared_ptr<Network> network, std::string optimized_model_path);
  static NetworkIO get_model_io_info(const std::string& model_path, const Config& config = {});
  static NetworkIO get_model_io_info(const void* model_mem, size_t size, const Config& config = {});
};

}  // namespace lite

#endif
