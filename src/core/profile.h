// What ran and when, while somebody looks on: a list of events per thread. Nothing is recorded, and no clock is read,
// unless profile::on(), which whoever runs work asks off its fast path.
//   profile::Event e(&op.name);  e.add(meta);  …run…  profile::finish(std::move(e), device);
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/small_vec.h"
#include "core/meta.h"

namespace mge::profile {

/// Nanoseconds of the steady clock.
int64_t now();

struct Event {
  explicit Event(const std::string* what) : name(what), begin(now()) {}
  void add(const Meta& m, bool result = false);
  std::string tensors() const;  // "float32[2,3] float32[3,4] -> float32[2,4]"

  const std::string* name;  // of an op, or interned
  int64_t begin, end = 0;
  const std::string* scope = nullptr;  // interned, or none
  const std::string* where = nullptr;  // the user's line: interned, or …
  int32_t loc = 0;                     // … as eager execution numbers it
  bool is_scope = false;
  int32_t device = -1;               // kind and index, when memory was looked at
  size_t allocated = 0;              // bytes on that device, after it
  SmallVec<int64_t, 12> sizes = {};  // per tensor: dtype | rank << 8 | result << 16, and its sizes
};

/// Events of one thread, in the order they ended.
struct Lane {
  std::string name;
  int64_t thread;  // of the system
  size_t dropped;  // beyond what is kept
  std::vector<Event> events;
};

extern std::atomic<bool> g_on;
inline bool on() { return g_on.load(std::memory_order_relaxed); }

/// Forgets what was recorded and begins.
void start();
void stop();
/// What was recorded since start, without what other threads are still at.
std::vector<Lane> take();

/// Ends the event, looks at the memory of the device and keeps it.
void finish(Event&& e, Device device);
/// Ends and keeps an event that is no op.
void finish(Event&& e);

/// One string of that text for as long as the process lives.
const std::string* intern(std::string_view text);
/// How the calling thread is called from now on.
void name_thread(const char* name);

// Scopes of the calling thread: what the program says it is doing ("net.conv1"). Errors and events name them.
void push_scope(std::string_view name);
/// The innermost must have this name (Value error).
void pop_scope(std::string_view name);
/// The path of open scopes; null outside all.
const std::string* scope();

}  // namespace mge::profile
