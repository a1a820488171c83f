#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/parallel.h"
#include "lite/error.h"
#include "lite/network.h"
#include "lite/network_impl.h"

namespace lite {
namespace {

// A network that this thread has for itself while the object lives.
class Held {
 public:
  explicit Held(const std::shared_ptr<Network>& n) : impl_(checked(n)), lock_(impl_.mutex) {}
  Network::Impl* operator->() const { return &impl_; }

 private:
  static Network::Impl& checked(const std::shared_ptr<Network>& n) {
    MGE_CHECK(n, Value, "lite: the network is null.");
    return NetworkAccess::impl(*n);
  }
  Network::Impl& impl_;
  std::lock_guard<std::recursive_mutex> lock_;
};

}  // namespace

void Runtime::set_cpu_threads_number(std::shared_ptr<Network> network, size_t n) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("set_cpu_threads_number");
    MGE_CHECK(n >= 1 && n <= 256, Value, "lite: the number of threads must be 1..256; got {}.", n);
    impl->threads = n;
  });
}
size_t Runtime::get_cpu_threads_number(std::shared_ptr<Network> network) {
  return guarded([&] { return Held(network)->threads; });
}

void Runtime::set_runtime_thread_affinity(std::shared_ptr<Network> network, const ThreadAffinityCallback& callback) {
  guarded([&] {
    MGE_CHECK(callback, Value, "lite: set_runtime_thread_affinity got an empty callback.");
    const int n = [&] {  // the callbacks come on other threads, so the network is not held meanwhile
      Held impl(network);
      impl->check_loaded("set_runtime_thread_affinity");
      return static_cast<int>(impl->threads);
    }();
    if (n == 1) return callback(0);
    const mge::ThreadLimit limit(n);
    // Each part waits until all have begun, so that no thread takes two. Another network may hold the team at the
    // moment; then the parts come one after the other and the wait must end.
    std::atomic<int> begun{0};
    mge::parallel_for(n, 1, [&](int64_t b, int64_t) {
      callback(static_cast<int>(b));
      ++begun;
      auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
      while (begun < n && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    });
  });
}

void Runtime::set_cpu_inplace_mode(std::shared_ptr<Network> network) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("set_cpu_inplace_mode");
    MGE_CHECK(!impl->async_callback, Assertion, "lite: CPU in-place mode cannot be used with an async callback.");
    impl->inplace = true;
  });
}
bool Runtime::is_cpu_inplace_mode(std::shared_ptr<Network> network) {
  return guarded([&] { return Held(network)->inplace; });
}
void Runtime::use_tensorrt(std::shared_ptr<Network> network) {
  guarded([&] {
    Held held(network);
    not_supported("TensorRT");
  });
}

void Runtime::set_network_algo_policy(std::shared_ptr<Network> network, LiteAlgoSelectStrategy strategy, uint32_t,
                                      bool) {
  guarded([&] {
    Held held(network);
    // Kernels are chosen by rule and always give the same bits, so every strategy but profiling is met already.
    MGE_CHECK((static_cast<unsigned>(strategy) & ~15u) == 0, Value,
              "lite: {} is no combination of LiteAlgoSelectStrategy.", static_cast<int>(strategy));
    if (static_cast<unsigned>(strategy) & LITE_ALGO_PROFILE) not_supported("LITE_ALGO_PROFILE (fast-run)");
  });
}
void Runtime::set_network_algo_workspace_limit(std::shared_ptr<Network> network, size_t) {
  guarded([&] {
    Held(network)->check_loaded("set_network_algo_workspace_limit");
    not_supported("a workspace limit");
  });
}
void Runtime::set_memory_allocator(std::shared_ptr<Network> network, std::shared_ptr<Allocator>) {
  guarded([&] {
    Held(network)->check_not_loaded("set_memory_allocator");
    not_supported("a user-defined allocator");
  });
}
void Runtime::share_runtime_memory_with(std::shared_ptr<Network> dst, std::shared_ptr<Network> src) {
  guarded([&] {
    Held(dst)->check_not_loaded("share_runtime_memory_with");
    Held held(src);
    not_supported("sharing runtime memory between networks");
  });
}

void Runtime::enable_io_txt_dump(std::shared_ptr<Network> network, std::string file) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("enable_io_txt_dump");
    MGE_CHECK(!file.empty(), Value, "lite: enable_io_txt_dump needs a file name.");
    impl->text_dump = std::move(file);
  });
}
void Runtime::enable_io_bin_dump(std::shared_ptr<Network> network, std::string dir) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("enable_io_bin_dump");
    MGE_CHECK(!dir.empty(), Value, "lite: enable_io_bin_dump needs a folder.");
    impl->bin_dump = std::move(dir);
  });
}

void Runtime::shared_weight_with_network(std::shared_ptr<Network> dst, const std::shared_ptr<Network> src) {
  guarded([&] {
    const auto model = [&] {  // never two networks held at once
      Held from(src);
      from->check_loaded("shared_weight_with_network");
      MGE_CHECK(!from->engine->dropped(), Assertion,
                "lite: shared_weight_with_network: the other network has dropped its model after its first forward "
                "(comp_node_seq_record_level=2). Share before that, or use level 1.");
      return from->model;
    }();
    Held(dst)->load_shared(model);
  });
}
void Runtime::enable_global_layout_transform(std::shared_ptr<Network> network) {
  guarded([&] {
    Held held(network);
    not_supported("the global layout transform");
  });
}
void Runtime::dump_layout_transform_model(std::shared_ptr<Network> network, std::string) {
  guarded([&] {
    Held held(network);
    not_supported("the global layout transform");
  });
}

NetworkIO Runtime::get_model_io_info(const std::string& path, const Config&) {
  return guarded([&] { return io_of(mge::serial::read_model_file(path, read_options())); });
}
NetworkIO Runtime::get_model_io_info(const void* mem, size_t size, const Config&) {
  return guarded([&] {
    MGE_CHECK(mem || size == 0, Value, "lite: get_model_io_info got a null pointer.");
    return io_of(mge::serial::read_model({static_cast<const uint8_t*>(mem), size}, "model in memory", read_options()));
  });
}

}  // namespace lite
