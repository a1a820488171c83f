#include "base/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace mge {
namespace {

thread_local bool tls_inside = false;
thread_local int tls_limit = 0;

int default_threads() {
  if (const char* env = std::getenv("MGE_NUM_THREADS")) {
    int n = std::atoi(env);
    if (n >= 1 && n <= 256) return n;
  }
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 256u));
}
std::atomic<int>& thread_count() {
  static std::atomic<int> n{default_threads()};
  return n;
}

// A plain pool: workers sleep on a condition variable between regions, after a short spin that covers back-to-back
// kernels. Leaked on purpose: joining at static destruction can hang a process that exits from another thread.
class Pool {
 public:
  static Pool& get() { return *current(); }
  /// In a forked child: another team, since none of the threads came along.
  static void start_over() { current() = new Pool; }
  void run(int n, FunctionRef<void(int)> task) {
    std::unique_lock<std::mutex> region(region_, std::try_to_lock);
    if (!region.owns_lock() || n <= 1) {  // another thread owns the team: do it here
      for (int i = 0; i < n; ++i) task(i);
      return;
    }
    ensure(n - 1);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      // A worker that woke late from the last region still reads task_; under the lock no new one can become busy.
      while (busy_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
      task_ = &task;
      total_ = n;
      left_.store(n, std::memory_order_relaxed);
      next_.store(0, std::memory_order_release);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    work();
    for (int spin = 0; left_.load(std::memory_order_acquire) > 0; ++spin)
      if (spin > 2000) std::this_thread::yield();
    // No worker may still look at task_ when this frame dies.
    while (busy_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }

 private:
  static Pool*& current() {
    static Pool* pool = new Pool;
    return pool;
  }
  void ensure(int workers) {
    while (threads_ < workers) {
      try {
        std::thread([this, seen = epoch_.load()]() mutable { loop(seen); }).detach();
      } catch (const std::system_error&) {
        return;  // the system gives no more threads: those there are do the work
      }
      ++threads_;
    }
  }
  void loop(uint64_t seen) {
    tls_inside = true;
    for (;;) {
      for (int spin = 0; spin < 4000 && epoch_.load(std::memory_order_acquire) == seen; ++spin) relax();
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
        seen = epoch_.load(std::memory_order_relaxed);
        busy_.fetch_add(1, std::memory_order_acq_rel);
      }
      work();
      busy_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  void work() {
    for (;;) {
      int i = next_.fetch_add(1, std::memory_order_acq_rel);
      if (i >= total_) return;
      (*task_)(i);
      left_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  std::mutex region_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> epoch_{0};
  std::atomic<int> next_{0}, left_{0}, busy_{0};
  const FunctionRef<void(int)>* task_ = nullptr;
  int total_ = 0;
  int threads_ = 0;
};

std::atomic<const ParallelBackend*> g_backend{nullptr};

void watch_fork() {
  static const int registered = pthread_atfork(
      [] {
        if (auto* b = g_backend.load(); b && b->before_fork) b->before_fork();
      },
      nullptr, Pool::start_over);
  (void)registered;
}

}  // namespace

int num_threads() { return tls_limit ? tls_limit : thread_count().load(std::memory_order_relaxed); }

ThreadLimit::ThreadLimit(int n) : before_(tls_limit) {
  if (n == 0) return;
  tls_limit = n;
  if (auto* b = g_backend.load()) b->set_threads(n);
}
ThreadLimit::~ThreadLimit() {
  if (tls_limit == before_) return;
  tls_limit = before_;
  if (auto* b = g_backend.load()) b->set_threads(num_threads());
}

void set_num_threads(int n) {
  MGE_CHECK(n >= 1 && n <= 256, Value, "set_num_threads: the count must be 1..256; got {}.", n);
  thread_count().store(n);
  if (auto* b = g_backend.load()) b->set_threads(n);
}

void set_parallel_backend(const ParallelBackend* backend) {
  watch_fork();
  g_backend.store(backend);
  if (backend) backend->set_threads(num_threads());
}

void parallel_for(int64_t n, int64_t grain, RangeFn fn) {
  if (n <= 0) return;
  int64_t parts = std::min<int64_t>(num_threads(), (n - 1) / std::max<int64_t>(grain, 1) + 1);
  if (parts <= 1 || tls_inside) {
    fn(0, n);
    return;
  }
  watch_fork();
  std::exception_ptr error;
  std::mutex error_mutex;
  const int64_t share = n / parts, extra = n % parts;  // the first `extra` ranges have one item more
  auto task = [&](int i) {
    bool outer = std::exchange(tls_inside, true);
    try {
      int64_t begin = share * i + std::min<int64_t>(i, extra);
      fn(begin, begin + share + (i < extra));
    } catch (...) {
      std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    tls_inside = outer;
  };
  if (auto* b = g_backend.load(std::memory_order_acquire))
    b->run(static_cast<int>(parts), task);
  else
    Pool::get().run(static_cast<int>(parts), task);
  if (error) std::rethrow_exception(error);
}

}  // namespace mge
