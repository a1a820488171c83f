#include "core/backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "core/poison.h"

namespace mge {
namespace {

constexpr size_t kHugePage = 2 << 20;

class CpuBackend final : public Backend {
 public:
  bool host_access() const override { return true; }
  void* map(Device, size_t bytes) override {
#ifdef _WIN32  // where an allocation is given back as a whole
    void* whole = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return whole == MAP_FAILED ? nullptr : whole;
#else
    // One huge page more than asked, and the ends given back: the system aligns to small pages only.
    void* all = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    auto at = reinterpret_cast<uintptr_t>(all), aligned = (at + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned > at) munmap(all, aligned - at);
    munmap(reinterpret_cast<void*>(aligned + bytes), at + kHugePage - aligned);
    void* p = reinterpret_cast<void*>(aligned);
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
#endif
  }
  void unmap(Device, void* p, size_t bytes) override { munmap(p, bytes); }
  bool discard(Device, void* p, size_t bytes) override { return madvise(p, bytes, MADV_DONTNEED) == 0; }
  void poison(void* p, size_t bytes, bool on) override { poison_memory(p, bytes, on); }
  Stream* stream(Device, int) override { return nullptr; }
  std::pair<size_t, size_t> memory(Device) const override {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {page * static_cast<size_t>(sysconf(_SC_PHYS_PAGES)), page * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES))};
  }
  int count() const override { return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)); }
};

struct Kind {
  std::atomic<Backend*> backend{nullptr};
  std::atomic<Backend* (*)(std::string*)> make{nullptr};  // until it has been asked
  std::string why = "this build has none";
};
std::mutex& making() {
  static auto* m = new std::mutex;
  return *m;
}
Kind& kind_of(DeviceKind kind) {
  static auto* table = [] {
    auto* t = new Kind[kDeviceKinds]();
    t[static_cast<int>(DeviceKind::Cpu)].backend = new CpuBackend;
    return t;
  }();
  return table[static_cast<int>(kind)];
}

Backend* find(DeviceKind kind) {
  Kind& k = kind_of(kind);
  Backend* b = k.backend.load(std::memory_order_acquire);
  if (b || !k.make.load(std::memory_order_acquire)) return b;
  std::lock_guard<std::mutex> lock(making());
  if (auto* make = k.make.load()) {
    k.backend.store(make(&k.why), std::memory_order_release);
    k.make.store(nullptr, std::memory_order_release);
  }
  return k.backend.load();
}

}  // namespace

Backend& Backend::of(DeviceKind kind) {
  Backend* b = find(kind);
  MGE_CHECK(b, Env, "device: there are no {} devices here: {}.", Device{kind, 0}.name(), missing(kind));
  return *b;
}
bool Backend::has(DeviceKind kind) { return find(kind); }
std::string Backend::missing(DeviceKind kind) {
  std::lock_guard<std::mutex> lock(making());
  std::string why = kind_of(kind).why;
  if (why.ends_with('.')) why.pop_back();  // it becomes a part of a sentence
  return why;
}
void Backend::offer(DeviceKind kind, Backend* (*make)(std::string* why)) { kind_of(kind).make.store(make); }
void Backend::install(DeviceKind kind, Backend* backend) {
  Backend* none = nullptr;
  kind_of(kind).backend.compare_exchange_strong(none, backend);
}

void Work::depend(const RefPtr<Work>& on) {
  call([on] {
    if (auto e = on->error()) throw Error(e->kind, e->text);
  });
}

namespace {
WaitHooks g_wait_hooks;
}
void set_wait_hooks(const WaitHooks& h) { g_wait_hooks = h; }
const WaitHooks& wait_hooks() { return g_wait_hooks; }

void throw_stored(const std::shared_ptr<const ExecError>& e) {
  e->seen = true;
  throw Error(e->kind == ErrorKind::Trace ? ErrorKind::Trace : ErrorKind::Async, e->text);
}

void wait_for(Work& w) {
  if (!w.wait_for(std::chrono::milliseconds(0))) {
    const OthersRun others;
    while (!w.wait_for(kPatience))
      if (g_wait_hooks.check) g_wait_hooks.check();
  }
  if (auto e = w.error()) throw_stored(e);
}

bool host_readable(const Storage& s) {
  return s.device.kind == DeviceKind::Cpu || Backend::of(s.device.kind).host_access();
}

}  // namespace mge
