// Who waits for whom, so that threads whose callbacks use each other's networks get an error and do not wait forever.
//   CallMutex mutex;  std::lock_guard lock(mutex);     throws instead of closing a ring
//   { Waiting now(busy);  ... }                        the same for anything else that a thread may wait for
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

#include "core/fork.h"

namespace lite {

/// What threads wait for, and the thread that it takes to end that.
struct Awaited {
  std::atomic<std::thread::id> owner{};
};

/// While it lives this thread waits for `what`. An Assertion error when that waits, maybe by way of others, for this
/// thread.
class Waiting {
 public:
  explicit Waiting(const Awaited& what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  const Awaited& what_;
  const std::thread::id thread_;
  Waiting* next_;
};

/// A recursive mutex; lock() may throw.
class CallMutex : private Awaited {
 public:
  void lock() {
    if (!mutex_.try_lock()) wait();
    took();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    took();
    return true;
  }
  void unlock() {
    if (--depth_ == 0) {
      owner.store({}, std::memory_order_relaxed);
      held_in_.store(kFree, std::memory_order_relaxed);
    }
    mutex_.unlock();
  }
  /// In a forked child: a thread that did not come along has it, for good.
  bool lost() const {
    const uint64_t in = held_in_.load(std::memory_order_relaxed);
    return in != kFree && in != mge::fork_generation();
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  void wait();
  void took() {
    owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (depth_++ == 0) held_in_.store(mge::fork_generation(), std::memory_order_relaxed);
  }
  std::atomic<uint64_t> held_in_{kFree};
  std::recursive_mutex mutex_;
  int depth_ = 0;
};

}  // namespace lite
