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
  Network::Impl& operator*() const { return impl_; }

 private:
  static Network::Impl& checked(const std::shared_ptr<Network>& n) {
    MGE_CHECK(n, Value, "lite: the network is null.");
    return NetworkAccess::impl(*n);
  }
  Network::Impl& impl_;
  std::lock_guard<CallMutex> lock_;
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
    mge::fail(mge::ErrorKind::NotImplemented,
              "lite: use_tensorrt: TensorRT needs a GPU, and this library runs on the CPU.");
  });
}

void Runtime::set_network_algo_policy(std::shared_ptr<Network> network, LiteAlgoSelectStrategy strategy,
                                      uint32_t shared_batch_size, bool binary_equal_between_batch) {
  guarded([&] {
    Held(network)->set_algo_policy(static_cast<uint32_t>(strategy), shared_batch_size, binary_equal_between_batch);
  });
}
void Runtime::set_network_algo_workspace_limit(std::shared_ptr<Network> network, size_t limit) {
  guarded([&] { Held(network)->set_workspace_limit(limit); });
}

namespace {

// The user's allocator as the engine asks for memory.
class UserMemory final : public mge::MemorySource {
 public:
  UserMemory(std::shared_ptr<Allocator> a, int device_id) : allocator_(std::move(a)), device_id_(device_id) {}
  void* allocate(size_t bytes, size_t align) override {
    return allocator_->allocate(LITE_CPU, device_id_, bytes, align);
  }
  void free(void* ptr) override { allocator_->free(LITE_CPU, device_id_, ptr); }

 private:
  std::shared_ptr<Allocator> allocator_;
  int device_id_;
};

}  // namespace

void Runtime::set_memory_allocator(std::shared_ptr<Network> network, std::shared_ptr<Allocator> allocator) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("set_memory_allocator");
    MGE_CHECK(allocator, Value, "lite: set_memory_allocator got no allocator.");
    impl->memory = std::make_shared<UserMemory>(std::move(allocator), impl->config.device_id);
  });
}
void Runtime::share_runtime_memory_with(std::shared_ptr<Network> dst, std::shared_ptr<Network> src) {
  guarded([&] {
    MGE_CHECK(dst && src, Value, "lite: the network is null.");
    MGE_CHECK(dst != src, Value, "lite: share_runtime_memory_with needs two networks.");
    Network::Impl &a = NetworkAccess::impl(*dst), &b = NetworkAccess::impl(*src);
    std::scoped_lock lock(a.mutex, b.mutex);
    a.check_not_loaded("share_runtime_memory_with");
    a.share_runtime_memory(b);
  });
}

namespace {
void show_values(Network::Impl& impl, std::string& where, std::string wanted) {
  where.swap(wanted);
  try {
    impl.show_values();
  } catch (...) {  // refused: the network stays as it was
    where.swap(wanted);
    throw;
  }
}
}  // namespace

void Runtime::enable_io_txt_dump(std::shared_ptr<Network> network, std::string file) {
  guarded([&] {
    Held impl(network);
    MGE_CHECK(!file.empty(), Value, "lite: enable_io_txt_dump needs a file name.");
    show_values(*impl, impl->text_dump, std::move(file));
  });
}
void Runtime::enable_io_bin_dump(std::shared_ptr<Network> network, std::string dir) {
  guarded([&] {
    Held impl(network);
    MGE_CHECK(!dir.empty(), Value, "lite: enable_io_bin_dump needs a folder.");
    show_values(*impl, impl->bin_dump, std::move(dir));
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
    MGE_CHECK(dst, Value, "lite: the network is null.");
    NetworkAccess::impl(*dst).load_shared(model);
  });
}
void Runtime::enable_global_layout_transform(std::shared_ptr<Network> network) {
  guarded([&] {
    Held impl(network);
    impl->check_not_loaded("enable_global_layout_transform");
    impl->layout_transform = true;  // layouts are chosen when programs are compiled in any case; this allows the dump
  });
}
void Runtime::dump_layout_transform_model(std::shared_ptr<Network> network, std::string path) {
  guarded([&] { Held(network)->write_optimised(path); });
}

NetworkIO Runtime::get_model_io_info(const std::string& path, const Config& config) {
  return guarded([&] { return io_of(load_bytes(bytes_of_file(path), config, {}, false).model); });
}
NetworkIO Runtime::get_model_io_info(const void* mem, size_t size, const Config& config) {
  return guarded([&] { return io_of(load_bytes(bytes_in_memory(mem, size), config, {}, false).model); });
}

}  // namespace lite
