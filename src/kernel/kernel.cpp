#include "kernel/kernel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/features.h"
#include "kernel/decompose.h"
#include "kernel/tune.h"

namespace mge {
namespace {

std::atomic<int>& tier_level() {
  static std::atomic<int> level{[] {
    const char* env = std::getenv("MGB_USE_MEGDNN_DBG");
    return env && (env[0] == '1' || env[0] == '2') && !env[1] ? env[0] - '0' : 0;
  }()};
  return level;
}
std::atomic<uint64_t> g_epoch{1};

// The key holds all a refuse() or avoid() function may look at: device, op, attrs, dtypes, shapes, and whether each
// input is contiguous.
uint64_t key_of(const KernelArgs& a) {
  uint64_t h = hash_mix(static_cast<uint64_t>(a.device) << 32 | a.op->id, attrs_hash(a.attrs));
  for (auto& t : a.in) {
    h = t.shape.hash(hash_mix(h, static_cast<uint64_t>(t.dtype) * 2 + t.contiguous()));
  }
  for (auto& t : a.out) h = hash_mix(h, static_cast<uint64_t>(t.dtype));
  return h;
}

struct Entry {
  uint64_t key = 0;
  const Kernel* kernel = nullptr;
};
constexpr size_t kSlots = 4096;
// Per thread, so that the hot path takes no lock. A 64-bit key collision would pick a wrong kernel with probability
// about n^2 / 2^65; n is the number of distinct (op, shape) pairs of a process.
struct LocalCache {
  uint64_t epoch = 0;
  Entry slots[kSlots];
};

}  // namespace

#ifndef MGE_WITH_ONEDNN
const char* onednn_unused() { return "this build has none"; }
#endif

KernelRegistry& KernelRegistry::global() {
  static KernelRegistry* r = [] {
    auto* reg = new KernelRegistry;
    register_ref_kernels(*reg);
#ifdef MGE_WITH_SIMD
    register_simd_kernels(*reg);
#endif
#ifdef MGE_WITH_ONEDNN
    register_onednn_kernels(*reg);
#endif
    return reg;
  }();
  return *r;
}

namespace {

// The fake device runs the kernels of the CPU, on its own streams, or those of another kind in tests.
std::atomic<DeviceKind> g_fake_kernels{DeviceKind::Cpu};
int kernels_of(DeviceKind k) {
  return static_cast<int>(k == DeviceKind::Fake ? g_fake_kernels.load(std::memory_order_relaxed) : k);
}

}  // namespace

void set_fake_kernels(DeviceKind k) {
  g_fake_kernels.store(k);
  forget_kernel_choices();
}

void KernelRegistry::put(const char* op, KernelTier tier, const Kernel& k, DeviceKind device) {
  auto& lists = by_op_[kernels_of(device)];
  const OpDef* of = OpRegistry::global().registered(op);
  MGE_ASSERT(of, "kernel {} is for {}, which is no op", k.name, op);
  const OpId id = of->id;
  if (lists.size() <= id) lists.resize(OpRegistry::global().size());
  auto& list = lists[id];
  auto at = std::find_if(list.begin(), list.end(), [&](auto& o) { return o->tier > tier; });
  (*list.insert(at, std::make_unique<Kernel>(k)))->tier = tier;
  g_epoch.fetch_add(1);
}

std::span<const std::unique_ptr<Kernel>> KernelRegistry::list(OpId op, DeviceKind device) const {
  auto& lists = by_op_[kernels_of(device)];
  if (op >= lists.size()) return {};
  return lists[op];
}

Choice KernelRegistry::find(const KernelArgs& a, KernelTier tier) const {
  Choice none;
  if (notes_all_features())
    for (auto& k : list(a.op->id, a.device))
      if (k->refuse) k->refuse(a);
  // Those to be avoided are asked last: whether they can may take long to find out.
  for (bool slow : {false, true}) {
    for (auto& k : list(a.op->id, a.device)) {
      if (k->tier < tier || (k->avoid && k->avoid(a)) != slow) continue;
      const char* why = k->refuse ? k->refuse(a) : nullptr;
      if (!why) return {k.get(), {}};
      none.refusals += format("{}{} ({})", none.refusals.empty() ? "" : ", ", k->name, why);
    }
  }
  return none;
}

void fail_no_kernel(const KernelArgs& a, const Choice& c) {
  std::string ins;
  for (auto& t : a.in) ins += format("{}{}{}", ins.empty() ? "" : ", ", dtype_name(t.dtype), t.shape.str());
  static constexpr const char* kKinds[] = {"cpu", "gpu", "cpu"};
  fail(ErrorKind::NotImplemented, "{}: no {} kernel for {}{}. Tried: {}.", a.op->name,
       kKinds[static_cast<int>(a.device)], ins, a.attrs ? " " + a.attrs->print() : "",
       c.refusals.empty() ? "none is registered" : c.refusals);
}

const Kernel& KernelRegistry::choose(const KernelArgs& a) {
  Choice none;
  if (const Kernel* k = choose(a, &none)) return *k;
  fail_no_kernel(a, none);
}

const Kernel* KernelRegistry::choose(const KernelArgs& a, Choice* none) {
  static thread_local LocalCache* cache = nullptr;
  static thread_local struct Owner {
    ~Owner() { delete cache, cache = nullptr; }
  } owner;
  (void)owner;
  if (!cache) cache = new LocalCache;
  uint64_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (cache->epoch != epoch) {
    for (auto& e : cache->slots) e = {};
    cache->epoch = epoch;
  }
  uint64_t key = key_of(a);
  Entry& e = cache->slots[key % kSlots];
  if (e.kernel && e.key == key) return e.kernel;
  if (const Kernel* forced = forced_kernel(*a.op)) return forced;  // being measured: not a choice to remember
  Choice c;
  if (primitives_only() && a.op->decompose)
    c.refusals = "only kernels of primitives are in use";
  else
    c = pick_kernel(*this, a, static_cast<KernelTier>(kernel_tier()));
  e = {key, c.kernel};
  if (!c.kernel && none) *none = std::move(c);
  return e.kernel;
}

void set_kernel_tier(int level) {
  MGE_CHECK(level >= 0 && level <= 2, Value, "kernel tier: expected 0 (all), 1 (simd) or 2 (ref); got {}.", level);
  tier_level().store(level);
  forget_kernel_choices();
}

void forget_kernel_choices() { g_epoch.fetch_add(1); }

int kernel_tier() { return tier_level().load(std::memory_order_relaxed); }

}  // namespace mge
