// The threads that compute. One team per process, for parallel_for and for the OpenMP regions of oneDNN alike; it grows
// to the number asked for and no region makes it smaller (docs/adr/0013-one-team.md). A fork-join thread pool.
//   Team& t = Team::get();
//   if (t.open(chunks, threads, task)) t.close();  // else somebody else has the team: run the chunks here
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/function_ref.h"

namespace mge {

inline constexpr int kMaxThreads = 256;

/// Whether this thread runs a part of a region; whatever it calls runs inline.
bool in_region();
/// While it lives, this thread counts as being in a region.
class InRegion {
 public:
  InRegion();
  ~InRegion();
  InRegion(const InRegion&) = delete;
  InRegion& operator=(const InRegion&) = delete;

 private:
  bool before_;
};

class Team {
 public:
  static Team& get();
  /// Ends surplus workers of the team, if there is one, now or when the region of another thread is over.
  static void shrink_to(int threads);
  /// Workers that exist, without the threads that call.
  static int workers();

  /// Opens a region of `chunks` (< 65536) calls of task(i), for the caller and up to threads - 1 workers. Each thread
  /// has its own share of neighbouring chunks and then takes what is left of others', so that whoever is late, asleep
  /// or preempted, delays nobody by more than the chunk it is in. `task` must live until close() and not throw. With
  /// `first_taken` chunk 0 is the caller's, to be run before close(). False: another thread has the team.
  bool open(int chunks, int threads, const FunctionRef<void(int)>& task, bool first_taken = false);
  /// Runs chunks that nobody has taken and waits for those that somebody has.
  void close();

 private:
  // What a thread may take: number of the region, first chunk not taken, end. One word, so that a chunk is only ever
  // taken from the region it belongs to; whoever takes nothing touches nothing of the caller's.
  struct alignas(128) Slot {
    std::atomic<uint64_t> chunks{0};
    std::atomic<uint32_t> asleep{0};
    std::thread thread;
  };

  static Team* start_over();
  void grow(int workers);
  void retire(int threads);
  void settle();
  void loop(int id, uint64_t seen);
  bool wait_for_region(int id, uint64_t* seen);
  void work(int id, uint32_t region, int threads);
  bool take(Slot& slot, uint32_t region, int* chunk);
  void wake(int id, int threads);
  template <class Done>
  bool spin(Done done);

  // What those who wait look at, apart from what the caller writes for each region.
  alignas(128) std::atomic<uint64_t> signal_{0};  // number of the latest region, and for how many threads it is
  std::atomic<int> keep_{kMaxThreads}, size_{0};
  std::atomic<int64_t> crowded_until_{0};
  alignas(128) std::atomic<uint32_t> left_{0};
  alignas(128) std::mutex region_;
  const FunctionRef<void(int)>* task_ = nullptr;
  uint32_t number_ = 0;
  int threads_ = 0;
  std::atomic<int> shrink_later_{0};
  Slot slots_[kMaxThreads];
};

}  // namespace mge
