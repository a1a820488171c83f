// The one way a kernel uses several cores. Ranges are disjoint; a kernel must give the same bits for every split.
//   parallel_for(rows, 64, [&](int64_t b, int64_t e) { for (; b < e; ++b) work(b); });
#pragma once
#include <cstdint>

#include "base/function_ref.h"

namespace mge {

using RangeFn = FunctionRef<void(int64_t, int64_t)>;

/// Runs fn over [0,n) in at most num_threads() ranges of at least `grain` items. Nested calls run inline.
/// The first exception of any range is rethrown on the caller's thread after all ranges ended.
void parallel_for(int64_t n, int64_t grain, RangeFn fn);
/// Of this thread's ThreadLimit when there is one, else of the process.
int num_threads();
/// 1 <= n <= 256, else a Value error. Takes effect at the next parallel_for.
void set_num_threads(int n);

/// While it lives, this thread's kernels use `n` threads (0: no change). For devices that name a number of threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(int n);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

/// A leaf that brings its own team (OpenMP under oneDNN) installs it here, so that one team serves all kernels.
struct ParallelBackend {
  /// Runs task(i) for i in [0,n), possibly in parallel, and returns when all are done. Must not throw.
  void (*run)(int n, FunctionRef<void(int)> task);
  void (*set_threads)(int n);
  /// On the thread that is about to fork: its team must end, for the child would wait for threads it does not have.
  void (*before_fork)();
};
void set_parallel_backend(const ParallelBackend* backend);

}  // namespace mge
