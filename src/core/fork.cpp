#include "core/fork.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <utility>
#include <vector>

#include "core/pool.h"

namespace mge {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);

thread_local int t_depth = 0;

struct Leaves {
  std::mutex mutex;
  std::vector<std::mutex*> all;
};
Leaves& leaves() {
  static auto* l = new Leaves;
  return *l;
}

void watch_leaves() {
  static constexpr auto give_back = [] {
    for (std::mutex* m : leaves().all) m->unlock();
    leaves().mutex.unlock();
  };
  static const int watched = pthread_atfork(
      [] {
        leaves().mutex.lock();
        for (std::mutex* m : leaves().all) m->lock();
      },
      give_back, give_back);
  (void)watched;
}

class Inside {
 public:
  static Inside& get() {
    static const int watched = [] {
      slot().store(new Inside);
      // The youngest handler comes first before a fork: what it waits for may still need memory and these mutexes.
      Pool::of(Device{});
      watch_leaves();
      return pthread_atfork([] { slot().load()->before_fork(); }, [] { slot().load()->after_fork(); },
                            [] { slot().store(new Inside); });  // the old one's locks belong to the parent
    }();
    (void)watched;
    return *slot().load(std::memory_order_acquire);
  }
  void enter() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return forks_ == 0; });
    ++threads_;
  }
  void leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (threads_ > 0 && --threads_ <= 1) changed_.notify_all();  // 0: forked inside, and this is the child
  }

 private:
  static std::atomic<Inside*>& slot() {
    static std::atomic<Inside*> s{nullptr};
    return s;
  }
  void before_fork() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++forks_;
    const int own = t_depth > 0;
    changed_.wait_for(lock, kPatience, [&] { return threads_ <= own; });
    forking_ = std::move(lock);
  }
  void after_fork() {
    --forks_;
    std::exchange(forking_, {}).unlock();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int threads_ = 0, forks_ = 0;
  std::unique_lock<std::mutex> forking_;
};

}  // namespace

ForkWaits::ForkWaits() {
  if (t_depth == 0) Inside::get().enter();
  ++t_depth;
}
ForkWaits::~ForkWaits() {
  if (--t_depth == 0) Inside::get().leave();
}

void fork_takes(std::mutex& leaf) {
  watch_leaves();
  const std::lock_guard<std::mutex> lock(leaves().mutex);
  leaves().all.push_back(&leaf);
}

uint64_t fork_generation() {
  static std::atomic<uint64_t> children{0};
  static const int watched = pthread_atfork(nullptr, nullptr, [] { children.fetch_add(1); });
  (void)watched;
  return children.load(std::memory_order_relaxed);
}

}  // namespace mge
