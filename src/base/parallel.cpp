#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "base/cpus.h"
#include "base/error.h"
#include "base/team.h"

namespace mge {
namespace {

thread_local int tls_limit = 0;

const ThreadDefault& initial() {
  static const ThreadDefault d = [] {
    ThreadDefault found = default_threads(std::getenv("MGE_NUM_THREADS"), std::getenv("OMP_NUM_THREADS"), cpus());
    if (!found.warning.empty()) std::fprintf(stderr, "megengine: %s\n", found.warning.c_str());
    return found;
  }();
  return d;
}
std::atomic<int>& thread_count() {
  static std::atomic<int> n{initial().count};
  return n;
}
std::atomic<bool> g_set{false};

}  // namespace

int num_threads() {
  if (in_region()) return 1;
  return tls_limit ? tls_limit : thread_count().load(std::memory_order_relaxed);
}

ThreadLimit::ThreadLimit(int n) : before_(tls_limit) {
  if (n != 0) tls_limit = n;
}
ThreadLimit::~ThreadLimit() { tls_limit = before_; }

void set_num_threads(int n) {
  MGE_CHECK(n >= 1 && n <= kMaxThreads, Value, "set_num_threads: the count must be 1..{}; got {}.", kMaxThreads, n);
  thread_count().store(n);
  g_set = true;
  if (!in_region()) Team::shrink_to(n);
}

ThreadReport thread_report() {
  return {thread_count(), g_set ? "set_num_threads" : initial().from, initial().warning, cpus().count, cpus().from,
          Team::workers()};
}

void parallel_for(int64_t n, int64_t grain, RangeFn fn, int64_t ranges_per_thread) {
  if (n <= 0) return;
  const int64_t threads = num_threads();
  const int64_t parts = std::min<int64_t>(threads * ranges_per_thread, (n - 1) / std::max<int64_t>(grain, 1) + 1);
  if (threads == 1 || parts <= 1) {
    fn(0, n);
    return;
  }
  std::exception_ptr error;
  std::mutex error_mutex;
  const int64_t share = n / parts, extra = n % parts;  // the first `extra` ranges have one item more
  auto run = [&](int i) {
    InRegion inside;
    try {
      int64_t begin = share * i + std::min<int64_t>(i, extra);
      fn(begin, begin + share + (i < extra));
    } catch (...) {
      std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  const FunctionRef<void(int)> task = run;
  Team& team = Team::get();
  if (!team.open(static_cast<int>(parts), static_cast<int>(std::min(threads, parts)), task)) {
    fn(0, n);  // another thread has the team
    return;
  }
  team.close();
  if (error) std::rethrow_exception(error);
}

}  // namespace mge
