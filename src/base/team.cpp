#include "base/team.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "base/cpus.h"

namespace mge {
namespace {

thread_local bool tls_in_region = false;

// Back-to-back kernels come within microseconds; whoever waits longer sleeps. A thread that finds itself preempted
// while it spins takes time from those it waits for, so nobody spins for a while after that.
constexpr int64_t kSpin = 100'000, kPreempted = 100'000, kCrowded = 20'000'000;  // ns

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr uint64_t pack(uint32_t region, int64_t first, int64_t end) {
  return static_cast<uint64_t>(region) << 32 | static_cast<uint64_t>(first) << 16 | static_cast<uint64_t>(end);
}
constexpr uint64_t kNext = 1 << 16;

std::atomic<Team*> g_team{nullptr};

}  // namespace

bool in_region() { return tls_in_region; }
InRegion::InRegion() : before_(std::exchange(tls_in_region, true)) {}
InRegion::~InRegion() { tls_in_region = before_; }

// Leaked on purpose: joining at static destruction can hang a process that exits from another thread. A forked child
// has none of the threads, so it gets another team; the old one stays as it is.
Team* Team::start_over() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    if (g_team.load()) g_team.store(new Team);
  });
  (void)registered;
  Team *none = nullptr, *mine = new Team;
  if (g_team.compare_exchange_strong(none, mine)) return mine;
  delete mine;
  return none;
}
Team& Team::get() {
  Team* t = g_team.load(std::memory_order_acquire);
  return t ? *t : *start_over();
}

int Team::workers() {
  Team* t = g_team.load();
  return t ? t->size_.load() : 0;
}

void Team::shrink_to(int threads) {
  Team* t = g_team.load();
  if (!t || t->size_.load() < threads) return;
  t->shrink_later_.store(threads);
  t->settle();
}

// Whoever has the team meanwhile does this when it is done.
void Team::settle() {
  while (shrink_later_.load()) {
    std::unique_lock<std::mutex> lock(region_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    if (const int threads = shrink_later_.exchange(0); threads && threads <= size_.load()) retire(threads);
  }
}

// ---- both under region_

void Team::grow(int workers) {
  if (size_.load(std::memory_order_relaxed) >= workers) return;
  sigset_t all, before;  // signals are for the threads of the program
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (size_.load() < workers) {
    const int id = size_.load() + 1;
    try {
      slots_[id].thread = std::thread([this, id, seen = signal_.load()] { loop(id, seen); });
    } catch (const std::exception&) {
      break;  // the system gives no more threads, or memory for one: those there are do the work
    }
    pthread_setname_np(slots_[id].thread.native_handle(), ("mge-team-" + std::to_string(id)).c_str());
    size_.store(id);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Team::retire(int threads) {
  const int last = size_.load();
  keep_.store(threads);
  for (int id = threads; id <= last; ++id) wake(id, kMaxThreads);
  for (int id = threads; id <= last; ++id) slots_[id].thread.join();
  size_.store(std::min(last, threads - 1));
  keep_.store(kMaxThreads);
}

// ---- workers

template <class Done>
bool Team::spin(Done done) {
  if (done()) return true;
  int64_t last = now();
  if (last < crowded_until_.load(std::memory_order_relaxed) || size_.load(std::memory_order_relaxed) >= cpus().count)
    return false;
  for (const int64_t until = last + kSpin; last < until;) {
    for (int i = 0; i < 32; ++i) {
      relax();
      if (done()) return true;
    }
    const int64_t t = now();
    if (t - last > kPreempted) {
      crowded_until_.store(t + kCrowded, std::memory_order_relaxed);
      return false;
    }
    last = t;
  }
  return false;
}

// False: this worker is no longer wanted.
bool Team::wait_for_region(int id, uint64_t* seen) {
  auto called = [&] {
    const uint64_t s = signal_.load();
    if (s == *seen) return keep_.load(std::memory_order_relaxed) <= id;
    *seen = s;
    return static_cast<int>(s & 0xffff) > id;
  };
  auto wanted = [&] { return keep_.load() > id; };
  if (spin(called)) return wanted();
  Slot& me = slots_[id];
  for (;;) {
    // Whoever signals looks at `asleep` after it has signalled, and this thread at the signal after it has said so.
    me.asleep.store(1);
    if (called() || !wanted()) break;
    me.asleep.wait(1);
    if (called() || !wanted()) break;
  }
  me.asleep.store(0);
  return wanted();
}

void Team::loop(int id, uint64_t seen) {
  tls_in_region = true;
  while (wait_for_region(id, &seen)) {
    const int threads = static_cast<int>(seen & 0xffff);
    wake(2 * id + 1, threads);
    wake(2 * id + 2, threads);
    work(id, static_cast<uint32_t>(seen >> 16), threads);
  }
}

void Team::wake(int id, int threads) {
  if (id >= threads || id >= kMaxThreads) return;
  Slot& s = slots_[id];
  if (s.asleep.load() && s.asleep.exchange(0)) s.asleep.notify_one();
}

bool Team::take(Slot& slot, uint32_t region, int* chunk) {
  uint64_t v = slot.chunks.load(std::memory_order_acquire);
  while (v >> 32 == region && (v >> 16 & 0xffff) < (v & 0xffff))
    if (slot.chunks.compare_exchange_weak(v, v + kNext, std::memory_order_acq_rel, std::memory_order_acquire)) {
      *chunk = static_cast<int>(v >> 16 & 0xffff);
      return true;
    }
  return false;
}

void Team::work(int id, uint32_t region, int threads) {
  uint32_t done = 0;
  int chunk;
  for (int k = 0; k < threads; ++k)
    for (Slot& slot = slots_[(id + k) % threads]; take(slot, region, &chunk); ++done) (*task_)(chunk);
  if (done && left_.fetch_sub(done) == done) left_.notify_one();
}

// ---- the caller

bool Team::open(int chunks, int threads, const FunctionRef<void(int)>& task, bool first_taken) {
  if (chunks >= 1 << 16 || !region_.try_lock()) return false;
  threads_ = std::min(threads, kMaxThreads);
  grow(threads_ - 1);
  task_ = &task;
  ++number_;
  left_.store(static_cast<uint32_t>(chunks - first_taken), std::memory_order_relaxed);
  for (int64_t i = 0; i < threads_; ++i)
    slots_[i].chunks.store(pack(number_, chunks * i / threads_ + (i == 0 && first_taken), chunks * (i + 1) / threads_),
                           std::memory_order_release);
  signal_.store(static_cast<uint64_t>(number_) << 16 | static_cast<uint64_t>(threads_));
  wake(1, threads_);
  wake(2, threads_);
  return true;
}

void Team::close() {
  work(0, number_, threads_);
  auto all_done = [&] { return left_.load(std::memory_order_acquire) == 0; };
  if (!spin(all_done))
    for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;) left_.wait(left);
  region_.unlock();
  settle();
}

}  // namespace mge
