// The one way a kernel uses several cores. Ranges are disjoint; a kernel must give the same bits for every split.
//   parallel_for(rows, value_grain(row), [&](int64_t b, int64_t e) { for (; b < e; ++b) work(b); });
#pragma once
#include <cstdint>
#include <string>

#include "base/function_ref.h"

namespace mge {

using RangeFn = FunctionRef<void(int64_t, int64_t)>;

/// Ranges that each thread may get: finer than one, so that a thread that is late leaves some to others.
inline constexpr int kRangesPerThread = 4;

/// Runs fn over [0,n) in ranges of at least `grain` items (base/cost.h), on at most num_threads() threads. Nested calls
/// run inline. The first exception of any range is rethrown on the caller's thread after all ranges ended. Neighbouring
/// ranges go to one thread where none is late.
void parallel_for(int64_t n, int64_t grain, RangeFn fn, int64_t ranges_per_thread = kRangesPerThread);
/// Threads that work given out here may use: of this thread's ThreadLimit when there is one, else of the process; 1
/// inside a parallel_for.
int num_threads();
/// 1 <= n <= 256, else a Value error. Takes effect at the next parallel_for.
void set_num_threads(int n);

/// While it lives, this thread's kernels use `n` threads (0: no change). For devices and networks with a number of
/// their own.
class ThreadLimit {
 public:
  explicit ThreadLimit(int n);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

/// For reports: the number of threads of the process, what it comes from, what was wrong with an environment variable
/// (or empty), the cores there are and what bounds them, and the workers started so far.
struct ThreadReport {
  int count;
  std::string from, warning;
  int cpus;
  std::string cpus_from;
  int workers;
};
ThreadReport thread_report();

}  // namespace mge
