// Who waits for whom, so that threads whose callbacks use each other's networks get an error and do not wait forever.
//   CallMutex mutex;  std::lock_guard lock(mutex);     throws instead of closing a ring
//   { Waiting now(busy);  ... }                        the same for anything else that a thread may wait for
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

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
    owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    ++depth_;
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    ++depth_;
    return true;
  }
  void unlock() {
    if (--depth_ == 0) owner.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  void wait();
  std::recursive_mutex mutex_;
  int depth_ = 0;
};

}  // namespace lite
