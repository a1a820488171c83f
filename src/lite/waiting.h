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

/// A recursive mutex. In a forked child lock() throws where a thread that did not come along has it, for good.
class ForkMutex {
 public:
  void lock() {
    if (try_lock()) return;
    check_kept("tensor");
    mutex_.lock();
    took();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    took();
    return true;
  }
  void unlock() {
    if (last()) held_in_.store(kFree, std::memory_order_relaxed);
    mutex_.unlock();
  }
  bool lost() const {
    const uint64_t in = held_in_.load(std::memory_order_relaxed);
    return in != kFree && in != mge::fork_generation();
  }

 protected:
  void check_kept(const char* what) const;
  bool last() { return --depth_ == 0; }
  void took() {
    if (depth_++ == 0) held_in_.store(mge::fork_generation(), std::memory_order_relaxed);
  }
  static constexpr uint64_t kFree = ~uint64_t{0};
  std::atomic<uint64_t> held_in_{kFree};
  std::recursive_mutex mutex_;

 private:
  int depth_ = 0;
};

/// The same, of a network: lock() throws instead of closing a ring, too.
class CallMutex : private Awaited, private ForkMutex {
 public:
  void lock() {
    if (!try_lock()) wait();
  }
  bool try_lock() {
    if (!ForkMutex::try_lock()) return false;
    owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void unlock() {
    if (last()) {
      owner.store({}, std::memory_order_relaxed);
      held_in_.store(kFree, std::memory_order_relaxed);
    }
    mutex_.unlock();
  }
  using ForkMutex::lost;

 private:
  void wait();
};

}  // namespace lite
