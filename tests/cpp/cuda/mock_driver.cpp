// A CUDA driver for tests, found by MGE_CUDA_DRIVER: devices are threads, their memory is the host's. A kernel is a
// host function that a test has given a name (mock_kernel); a stream runs it when its turn comes, not before.
#include <unistd.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
using Result = int;

namespace {

struct Event {
  uint64_t wanted = 0, seen = 0;  // records enqueued, and come
};
struct Stream {
  std::deque<std::function<bool()>> queue;  // false: not yet
  bool started = false;
  std::vector<std::function<bool()>>* capture = nullptr;
};
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, void (*)(void**)> kernels;
  int sticky = 0, refuse = 0;
  int64_t fail_in = 0, delay = 0, allocations = 0;
  size_t memory = size_t{1} << 30, used = 0;
  std::map<void*, size_t> blocks;
};
State& state() {
  static auto* s = new State;
  return *s;
}
thread_local void* t_context = nullptr;
int g_contexts[2];

void run(Stream* s) {
  State& m = state();
  for (;;) {
    std::unique_lock<std::mutex> lock(m.mutex);
    m.changed.wait(lock, [&] { return !s->queue.empty(); });
    auto item = s->queue.front();
    lock.unlock();
    if (!item()) {
      std::this_thread::yield();
      continue;
    }
    lock.lock();
    s->queue.pop_front();
    lock.unlock();
    m.changed.notify_all();
  }
}

Result push(void* stream, std::function<bool()> item) {
  State& m = state();
  auto* s = static_cast<Stream*>(stream);
  std::lock_guard<std::mutex> lock(m.mutex);
  if (m.sticky) return m.sticky;
  if (!t_context) return 201;  // no context is current on this thread
  if (s->capture) return s->capture->push_back(std::move(item)), 0;
  if (!s->started) {
    s->started = true;
    std::thread(run, s).detach();
  }
  s->queue.push_back([item = std::move(item)] {
    State& all = state();
    {
      std::lock_guard<std::mutex> look(all.mutex);
      if (all.sticky) return true;  // a dead device does nothing
    }
    return item();
  });
  m.changed.notify_all();
  return 0;
}

Result copy(void* to, const void* from, size_t bytes, void* stream) {
  return push(stream, [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
}

void nothing(void**) {}  // a kernel that no test has named

void* at(unsigned long long p) { return reinterpret_cast<void*>(p); }

}  // namespace

// ---- what tests say
EXPORT void mock_kernel(const char* name, void (*fn)(void**)) { state().kernels[name] = fn; }
EXPORT void mock_delay(int64_t microseconds) { state().delay = microseconds; }
/// The nth launch from now on breaks the context with this error, when it runs.
EXPORT void mock_break(int64_t nth, int error) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().fail_in = nth;
  state().refuse = error;
}
EXPORT void mock_mend() {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().sticky = 0;
  state().fail_in = 0;
}
EXPORT int64_t mock_memory(size_t limit) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (limit) state().memory = limit;
  return static_cast<int64_t>(state().used);
}

// ---- the driver
EXPORT Result cuInit(unsigned) { return 0; }
EXPORT Result cuDriverGetVersion(int* v) { return *v = 13000, 0; }
EXPORT Result cuGetErrorName(Result r, const char** s) {
  *s = r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
  return 0;
}
EXPORT Result cuGetErrorString(Result, const char** s) { return *s = "as the test asked", 0; }
EXPORT Result cuDeviceGetCount(int* n) { return *n = 2, 0; }
EXPORT Result cuDeviceGet(int* d, int i) { return *d = i, 0; }
EXPORT Result cuDeviceGetName(char* s, int n, int) {
  std::strncpy(s, "Mock GPU", static_cast<size_t>(n));
  return 0;
}
EXPORT Result cuDeviceTotalMem_v2(size_t* n, int) { return *n = state().memory, 0; }
EXPORT Result cuDeviceGetAttribute(int* v, int what, int) {
  return *v = what == 75 ? 9 : what == 76 ? 0 : what == 16 ? 4 : 48 << 10, 0;
}
EXPORT Result cuDevicePrimaryCtxRetain(void** c, int d) { return *c = &g_contexts[d], 0; }
// As the real one: a forked child finds a driver that is not initialised.
EXPORT Result cuCtxGetCurrent(void** c) {
  static const pid_t first = getpid();
  return *c = t_context, getpid() == first ? 0 : 3;
}
EXPORT Result cuCtxSetCurrent(void* c) { return t_context = c, 0; }
EXPORT Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  std::lock_guard<std::mutex> lock(state().mutex);
  *total = state().memory;
  *free = state().memory - state().used;
  return 0;
}
EXPORT Result cuMemAlloc_v2(unsigned long long* p, size_t bytes) {
  State& m = state();
  std::lock_guard<std::mutex> lock(m.mutex);
  if (!t_context) return 201;
  if (m.sticky) return m.sticky;
  if (m.used + bytes > m.memory) return 2;
  const bool odd = ++m.allocations == 2;  // the driver need not align as the pool asks
  char* base = static_cast<char*>(std::aligned_alloc(size_t{2} << 20, bytes + (size_t{2} << 20)));
  *p = reinterpret_cast<unsigned long long>(base + (odd ? 512 : 0));
  m.blocks[at(*p)] = bytes;
  m.used += bytes;
  return 0;
}
EXPORT Result cuMemFree_v2(unsigned long long p) {
  State& m = state();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto it = m.blocks.find(at(p));
  if (it == m.blocks.end()) return 1;
  m.used -= it->second;
  m.blocks.erase(it);
  std::free(reinterpret_cast<void*>(p & ~((1ull << 21) - 1)));
  return 0;
}
EXPORT Result cuMemHostAlloc(void** p, size_t bytes, unsigned) { return (*p = std::malloc(bytes)) ? 0 : 2; }
EXPORT Result cuMemHostGetDevicePointer_v2(unsigned long long* d, void* p, unsigned) {
  return *d = reinterpret_cast<unsigned long long>(p), 0;
}
EXPORT Result cuMemFreeHost(void* p) { return std::free(p), 0; }
EXPORT Result cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t n, void* s) {
  return copy(at(to), from, n, s);
}
EXPORT Result cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t n, void* s) {
  return copy(to, at(from), n, s);
}
EXPORT Result cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t n, void* s) {
  return copy(at(to), at(from), n, s);
}
EXPORT Result cuMemcpyPeerAsync(unsigned long long to, void*, unsigned long long from, void*, size_t n, void* s) {
  return copy(at(to), at(from), n, s);
}
EXPORT Result cuMemsetD8Async(unsigned long long to, unsigned char v, size_t n, void* s) {
  return push(s, [=] { return std::memset(at(to), v, n), true; });
}
EXPORT Result cuStreamCreate(void** s, unsigned) { return *s = new Stream, t_context ? 0 : 201; }
EXPORT Result cuEventCreate(void** e, unsigned) { return *e = new Event, t_context ? 0 : 201; }
EXPORT Result cuEventRecord(void* event, void* s) {
  auto* e = static_cast<Event*>(event);
  uint64_t n;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    n = ++e->wanted;
  }
  return push(s, [=] {
    std::lock_guard<std::mutex> lock(state().mutex);
    e->seen = std::max(e->seen, n);
    return true;
  });
}
EXPORT Result cuEventQuery(void* event) {
  auto* e = static_cast<Event*>(event);
  std::lock_guard<std::mutex> lock(state().mutex);
  if (state().sticky) return state().sticky;
  return e->seen >= e->wanted ? 0 : 600;
}
EXPORT Result cuEventElapsedTime(float* ms, void*, void*) { return *ms = 0, 0; }
EXPORT Result cuStreamWaitEvent(void* s, void* event, unsigned) {
  auto* e = static_cast<Event*>(event);
  uint64_t n;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    n = e->wanted;
  }
  return push(s, [=] {
    std::lock_guard<std::mutex> lock(state().mutex);
    return e->seen >= n;
  });
}
EXPORT Result cuStreamBeginCapture_v2(void* s, int) {
  return static_cast<Stream*>(s)->capture = new std::vector<std::function<bool()>>, 0;
}
EXPORT Result cuStreamEndCapture(void* s, void** graph) {
  return *graph = std::exchange(static_cast<Stream*>(s)->capture, nullptr), 0;
}
EXPORT Result cuLibraryLoadData(void** l, const void*, int*, void**, unsigned, int*, void**, unsigned) {
  return *l = &state(), 0;
}
EXPORT Result cuLibraryUnload(void*) { return 0; }
EXPORT Result cuLibraryGetKernel(void** k, void*, const char* name) {
  auto it = state().kernels.find(name);
  return *k = reinterpret_cast<void*>(it == state().kernels.end() ? nothing : it->second), 0;
}
EXPORT Result cuKernelSetAttribute(int, int, void*, int) { return 0; }
EXPORT Result cuLaunchKernel(void* f, unsigned, unsigned, unsigned, unsigned bx, unsigned by, unsigned bz, unsigned,
                             void* s, void** args, void**) {
  if (bx * by * bz > 1024 || !bx) return 1;
  // As many arguments as the test's kernels have, by value: each is a word.
  if (f == reinterpret_cast<void*>(nothing)) return push(s, [] { return true; });
  auto words = std::make_shared<std::array<uint64_t, 4>>();
  for (size_t i = 0; i < 4 && args && args[i]; ++i) std::memcpy(&(*words)[i], args[i], 8);
  bool broken = false;
  int64_t delay;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    broken = state().fail_in > 0 && --state().fail_in == 0;
    delay = state().delay;
  }
  return push(s, [=] {
    if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
    if (broken) {
      std::lock_guard<std::mutex> lock(state().mutex);
      state().sticky = state().refuse;
      return true;
    }
    void* pointers[4];
    for (size_t i = 0; i < 4; ++i) pointers[i] = &(*words)[i];
    reinterpret_cast<void (*)(void**)>(f)(pointers);
    return true;
  });
}
EXPORT Result cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return *exec = new auto(*static_cast<std::vector<std::function<bool()>>*>(graph)), 0;
}
EXPORT Result cuGraphLaunch(void* exec, void* s) {
  for (auto& item : *static_cast<std::vector<std::function<bool()>>*>(exec))
    if (Result r = push(s, item)) return r;
  return 0;
}
EXPORT Result cuGraphExecDestroy(void* exec) {
  return delete static_cast<std::vector<std::function<bool()>>*>(exec), 0;
}
EXPORT Result cuGraphDestroy(void* graph) { return cuGraphExecDestroy(graph); }
