#include "lite-c/network_c.h"

#include <map>
#include <mutex>

#include "lite/c_api/handles.h"

using namespace lite;

#define LITE_DEFAULT_OPTIONS \
  { 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0 }
const LiteOptions default_option = LITE_DEFAULT_OPTIONS;
const LiteIO default_io = {nullptr, 1, LITE_IO_VALUE, {{0, 0, 0, 0, 0, 0, 0}, 0, LITE_FLOAT}};

LiteConfig* default_config(void) {
  thread_local LiteConfig config;
  config = {0, -1, LITE_CPU, LITE_DEFAULT, nullptr, LITE_DEFAULT_OPTIONS, 0, nullptr};
  return &config;
}
LiteNetworkIO* default_network_io(void) {
  thread_local LiteNetworkIO io;
  io = {nullptr, nullptr, 0, 0};
  return &io;
}

namespace {

using IoMap = std::unordered_map<std::string, std::pair<IO, std::shared_ptr<Tensor>>>;

// What a C callback gets: parallel arrays of ios and tensor handles.
struct CallbackArgs {
  std::vector<LiteIO> ios;
  std::vector<LiteTensor> tensors;
  std::shared_ptr<const void> names;
  CallbackArgs(LiteNetwork net, const IoMap& map) : names(hold_strings(net)) {
    for (auto& [name, entry] : map) {
      ios.push_back(
          {keep_string(net, name), entry.first.is_host, entry.first.io_type, to_c(entry.second->get_layout())});
      tensors.push_back(network_tensor(net, entry.second));
    }
  }
};

void check_callback(int code, const char* what) {
  MGE_CHECK(code == 0, Env, "lite: the {} callback returned {}.", what, code);
}

// The storage behind LITE_get_model_io_info_*, kept per result pointer.
struct IoInfo {
  std::vector<std::string> names;
  std::vector<LiteIO> inputs, outputs;
};
void keep_io_info(const NetworkIO& io, LiteNetworkIO* out) {
  static std::mutex mutex;
  static auto* kept = new std::map<LiteNetworkIO*, IoInfo>;
  IoInfo info;
  info.names.reserve(io.inputs.size() + io.outputs.size());
  auto fill = [&](const std::vector<IO>& from, std::vector<LiteIO>& to) {
    for (const IO& x : from) {
      info.names.push_back(x.name);
      to.push_back({info.names.back().c_str(), x.is_host, x.io_type, to_c(x.config_layout)});
    }
  };
  fill(io.inputs, info.inputs);
  fill(io.outputs, info.outputs);
  std::lock_guard<std::mutex> lock(mutex);
  IoInfo& slot = (*kept)[out] = std::move(info);
  *out = {slot.inputs.data(), slot.outputs.data(), slot.inputs.size(), slot.outputs.size()};
}

void all_names(LiteNetwork net, const std::vector<std::string>& names, size_t* size, const char** out) {
  if (size) *size = names.size();
  for (size_t i = 0; out && i < names.size(); ++i) out[i] = keep_string(net, names[i]);
}

}  // namespace

int LITE_make_default_network(LiteNetwork* network) {
  return c_guarded([&] { *not_null(network, "network") = add_network(std::make_shared<Network>()); });
}
int LITE_make_network(LiteNetwork* network, const LiteConfig config, const LiteNetworkIO io) {
  return c_guarded([&] {
    not_null(network, "network");
    *network = add_network(std::make_shared<Network>(to_cpp(config), to_cpp(io)));
  });
}
int LITE_make_network_config(LiteNetwork* network, const LiteConfig config) {
  return c_guarded([&] {
    not_null(network, "network");
    *network = add_network(std::make_shared<Network>(to_cpp(config)));
  });
}
int LITE_destroy_network(LiteNetwork network) {
  return c_guarded([&] { remove_network(network); });
}
int LITE_load_model_from_mem(LiteNetwork network, void* mem, size_t size) {
  return c_guarded([&] { find_network(network)->load_model(not_null(mem, "model_mem"), size); });
}
int LITE_load_model_from_path(LiteNetwork network, const char* path) {
  return c_guarded([&] { find_network(network)->load_model(std::string(not_null(path, "model_path"))); });
}
int LITE_shared_weight_with_network(LiteNetwork dst, const LiteNetwork src) {
  return c_guarded([&] { Runtime::shared_weight_with_network(find_network(dst), find_network(src)); });
}
int LITE_forward(const LiteNetwork network) {
  return c_guarded([&] { find_network(network)->forward(); });
}
int LITE_wait(const LiteNetwork network) {
  return c_guarded([&] { find_network(network)->wait(); });
}

int LITE_get_io_tensor(LiteNetwork network, const char* name, LiteTensorPhase phase, LiteTensor* tensor) {
  return c_guarded([&] {
    auto net = find_network(network);
    not_null(tensor, "tensor");
    *tensor = network_tensor(network, net->get_io_tensor(not_null(name, "io_name"), phase));
  });
}
int LITE_get_discrete_tensor(LiteNetwork network, const char* name, size_t index, LiteTensorPhase phase,
                             LiteTensor* tensor) {
  return c_guarded([&] {
    auto net = find_network(network);
    not_null(tensor, "tensor");
    const auto all = net->get_discrete_tensors(not_null(name, "io_name"), phase);
    MGE_CHECK(index < all.size(), Index, "lite: tensor {} of the discrete input '{}', which has {}.", index, name,
              all.size());
    *tensor = network_tensor(network, all[index]);
  });
}
int LITE_get_input_name(const LiteNetwork network, size_t index, const char** name) {
  return c_guarded(
      [&] { *not_null(name, "name") = keep_string(network, find_network(network)->get_input_name(index)); });
}
int LITE_get_output_name(const LiteNetwork network, size_t index, const char** name) {
  return c_guarded(
      [&] { *not_null(name, "name") = keep_string(network, find_network(network)->get_output_name(index)); });
}
int LITE_get_all_input_name(const LiteNetwork network, size_t* size, const char** name) {
  return c_guarded([&] { all_names(network, find_network(network)->get_all_input_name(), size, name); });
}
int LITE_get_all_output_name(const LiteNetwork network, size_t* size, const char** name) {
  return c_guarded([&] { all_names(network, find_network(network)->get_all_output_name(), size, name); });
}

int LITE_is_cpu_inplace_mode(const LiteNetwork network, int* inplace) {
  return c_guarded(
      [&] { *not_null(inplace, "is_cpu_inplace_mode") = Runtime::is_cpu_inplace_mode(find_network(network)); });
}
int LITE_get_cpu_threads_number(const LiteNetwork network, size_t* n) {
  return c_guarded([&] { *not_null(n, "nr_threads") = Runtime::get_cpu_threads_number(find_network(network)); });
}
int LITE_get_device_id(const LiteNetwork network, int* id) {
  return c_guarded([&] { *not_null(id, "device_id") = find_network(network)->get_device_id(); });
}
int LITE_get_stream_id(const LiteNetwork network, int* id) {
  return c_guarded([&] { *not_null(id, "stream_id") = find_network(network)->get_stream_id(); });
}
int LITE_get_device_type(const LiteNetwork network, LiteDeviceType* type) {
  return c_guarded([&] { *not_null(type, "device_type") = find_network(network)->get_device_type(); });
}
int LITE_get_model_extra_info(const LiteNetwork network, const char** info, int* size) {
  return c_guarded([&] {
    const auto held = find_network(network);  // another thread may destroy it meanwhile
    const std::string& text = held->get_model_extra_info();
    *not_null(info, "info") = keep_string(network, text);
    *not_null(size, "info_size") = static_cast<int>(text.size());
  });
}
int LITE_set_cpu_inplace_mode(LiteNetwork network) {
  return c_guarded([&] { Runtime::set_cpu_inplace_mode(find_network(network)); });
}
int LITE_set_cpu_threads_number(LiteNetwork network, size_t n) {
  return c_guarded([&] { Runtime::set_cpu_threads_number(find_network(network), n); });
}
int LITE_set_device_id(LiteNetwork network, int id) {
  return c_guarded([&] { find_network(network)->set_device_id(id); });
}
int LITE_set_stream_id(LiteNetwork network, int id) {
  return c_guarded([&] { find_network(network)->set_stream_id(id); });
}
int LITE_use_tensorrt(LiteNetwork network) {
  return c_guarded([&] { Runtime::use_tensorrt(find_network(network)); });
}
int LITE_set_network_algo_policy(LiteNetwork network, LiteAlgoSelectStrategy strategy) {
  return c_guarded([&] { Runtime::set_network_algo_policy(find_network(network), strategy); });
}
int LITE_set_network_algo_fastrun_config(LiteNetwork network, unsigned int batch, int binary_equal) {
  return c_guarded([&] {
    Runtime::set_network_algo_policy(find_network(network), static_cast<LiteAlgoSelectStrategy>(0), batch,
                                     binary_equal != 0);
  });
}
int LITE_set_network_algo_workspace_limit(LiteNetwork network, size_t limit) {
  return c_guarded([&] { Runtime::set_network_algo_workspace_limit(find_network(network), limit); });
}

int LITE_set_async_callback(LiteNetwork network, const LiteAsyncCallback callback) {
  return c_guarded([&] {
    not_null(callback, "async_callback");
    find_network(network)->set_async_callback([callback] { check_callback(callback(), "async"); });
  });
}
int LITE_set_async_callback_with_userdata(LiteNetwork network, LiteAsyncCallbackWithData callback, void* data) {
  return c_guarded([&] {
    not_null(callback, "async_callback");
    find_network(network)->set_async_callback([callback, data] { check_callback(callback(data), "async"); });
  });
}
int LITE_set_start_callback(LiteNetwork network, const LiteStartCallback callback) {
  return c_guarded([&] {
    not_null(callback, "start_callback");
    find_network(network)->set_start_callback([network, callback](const IoMap& map) {
      CallbackArgs a(network, map);
      check_callback(callback(a.ios.data(), a.tensors.data(), a.ios.size()), "start");
    });
  });
}
int LITE_set_start_callback_with_userdata(LiteNetwork network, LiteStartCallbackWithData callback, void* data) {
  return c_guarded([&] {
    not_null(callback, "start_callback");
    find_network(network)->set_start_callback([network, callback, data](const IoMap& map) {
      CallbackArgs a(network, map);
      check_callback(callback(a.ios.data(), a.tensors.data(), a.ios.size(), data), "start");
    });
  });
}
int LITE_set_finish_callback(LiteNetwork network, const LiteFinishCallback callback) {
  return c_guarded([&] {
    not_null(callback, "finish_callback");
    find_network(network)->set_finish_callback([network, callback](const IoMap& map) {
      CallbackArgs a(network, map);
      check_callback(callback(a.ios.data(), a.tensors.data(), a.ios.size()), "finish");
    });
  });
}
int LITE_set_finish_callback_with_userdata(LiteNetwork network, LiteFinishCallbackWithData callback, void* data) {
  return c_guarded([&] {
    not_null(callback, "finish_callback");
    find_network(network)->set_finish_callback([network, callback, data](const IoMap& map) {
      CallbackArgs a(network, map);
      check_callback(callback(a.ios.data(), a.tensors.data(), a.ios.size(), data), "finish");
    });
  });
}
int LITE_set_runtime_thread_affinity(LiteNetwork network, const LiteThreadAffinityCallback callback) {
  return c_guarded([&] {
    not_null(callback, "thread_affinity_callback");
    Runtime::set_runtime_thread_affinity(find_network(network),
                                         [callback](int id) { check_callback(callback(id), "affinity"); });
  });
}
namespace {
class CAllocator final : public Allocator {
 public:
  CAllocator(LiteAllocate allocate, LiteFree free) : allocate_(allocate), free_(free) {}
  void* allocate(LiteDeviceType type, int id, size_t size, size_t align) override {
    return allocate_(type, id, size, align);
  }
  void free(LiteDeviceType type, int id, void* ptr) override { free_(type, id, ptr); }

 private:
  LiteAllocate allocate_;
  LiteFree free_;
};
}  // namespace

int LITE_set_memory_allocator(LiteNetwork network, const LiteAllocate allocate, const LiteFree free) {
  return c_guarded([&] {
    auto net = find_network(network);
    not_null(allocate, "allocate_fun");
    not_null(free, "free_fun");
    Runtime::set_memory_allocator(net, std::make_shared<CAllocator>(allocate, free));
  });
}
int LITE_share_runtime_memroy(LiteNetwork dst, LiteNetwork src) {
  return c_guarded([&] { Runtime::share_runtime_memory_with(find_network(dst), find_network(src)); });
}

int LITE_enable_profile_performance(LiteNetwork network, const char* path) {
  return c_guarded(
      [&] { find_network(network)->enable_profile_performance(not_null(path, "profile_json_file_path")); });
}
int LITE_enable_io_txt_dump(LiteNetwork network, const char* file) {
  return c_guarded([&] { Runtime::enable_io_txt_dump(find_network(network), not_null(file, "io_txt_out_file")); });
}
int LITE_enable_io_bin_dump(LiteNetwork network, const char* dir) {
  return c_guarded([&] { Runtime::enable_io_bin_dump(find_network(network), not_null(dir, "io_bin_out_dir")); });
}
int LITE_get_static_memory_alloc_info(LiteNetwork network, const char* dir) {
  return c_guarded([&] { find_network(network)->get_static_memory_alloc_info(not_null(dir, "log_dir")); });
}
int LITE_enable_global_layout_transform(LiteNetwork network) {
  return c_guarded([&] { Runtime::enable_global_layout_transform(find_network(network)); });
}
int LITE_dump_layout_transform_model(LiteNetwork network, const char* path) {
  return c_guarded(
      [&] { Runtime::dump_layout_transform_model(find_network(network), not_null(path, "dump_file_path")); });
}
int LITE_get_model_io_info_by_path(const char* path, const LiteConfig config, LiteNetworkIO* ios) {
  return c_guarded([&] {
    not_null(ios, "ios");
    keep_io_info(Runtime::get_model_io_info(std::string(not_null(path, "model_path")), to_cpp(config)), ios);
  });
}
int LITE_get_model_io_info_by_memory(const void* mem, size_t size, const LiteConfig config, LiteNetworkIO* ios) {
  return c_guarded([&] {
    not_null(ios, "ios");
    keep_io_info(Runtime::get_model_io_info(not_null(mem, "model_mem"), size, to_cpp(config)), ios);
  });
}
int LITE_extra_configure(LiteNetwork network, LiteExtraConfig extra) {
  return c_guarded([&] { find_network(network)->extra_configure({extra.disable_configure_by_model_info != 0}); });
}
