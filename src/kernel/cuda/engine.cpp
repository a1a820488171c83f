#include "kernel/cuda/engine.h"

#include <mutex>
#include <unordered_map>

#include "base/hash.h"

namespace mge::cuda {
namespace {

uint64_t hash_of(const Key& k) {
  uint64_t h = k.size();
  for (uint64_t w : k) h = hash_mix(h, w);
  return h;
}
struct Entry {
  Key key;
  const Code* code;
};
using Cache = std::unordered_multimap<uint64_t, Entry>;
const Code* look(const Cache& c, uint64_t h, const Key& k) {
  auto [b, e] = c.equal_range(h);
  for (; b != e; ++b)
    if (b->second.key == k) return b->second.code;
  return nullptr;
}

std::atomic<Engine*> g_engine{nullptr};

}  // namespace

Engine& gpu_engine();  // device_engine.cpp

Engine& engine() {
  Engine* e = g_engine.load(std::memory_order_acquire);
  return e ? *e : gpu_engine();
}
void set_engine(Engine* e) { g_engine.store(e, std::memory_order_release); }

const Code& code_of(const Key& key, const std::function<Code*()>& make) {
  static std::mutex mutex;
  static Cache* shared = new Cache;  // leaked with its entries: work may run during static destruction
  static thread_local Cache local;   // no lock on the way of a run
  const uint64_t h = hash_of(key);
  if (const Code* c = look(local, h, key)) return *c;
  std::lock_guard<std::mutex> lock(mutex);
  const Code* c = look(*shared, h, key);
  if (!c) {
    c = make();
    shared->emplace(h, Entry{key, c});
  }
  local.emplace(h, Entry{key, c});
  return *c;
}

}  // namespace mge::cuda
