#include "core/pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "core/storage.h"

// Under AddressSanitizer, memory that is not handed out is poisoned to the byte, so that a kernel that leaves its
// tensor or uses one that was freed is caught as with malloc.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define MGE_NO_ASAN __attribute__((no_sanitize("address")))
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define MGE_NO_ASAN
#endif

namespace mge {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallMax = 256 << 10;
constexpr size_t kSlab = 2 << 20;     // small blocks are cut from slabs of this size
constexpr size_t kRegion = 32 << 20;  // large regions are mapped in multiples of this while small, to coalesce well
constexpr int kClassCount = 64;

size_t align_up(size_t n, size_t a) { return (n + a - 1) / a * a; }

void unmap_pages(void* p, size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(p, bytes);  // the addresses may go to somebody else
  munmap(p, bytes);
}

// A free small block carries a mark in its first word, so that freeing it again is noticed.
uint64_t free_mark(void* p) { return reinterpret_cast<uintptr_t>(p) ^ 0xF4EEB10C5EEDC0DEull; }
MGE_NO_ASAN bool has_free_mark(void* p) { return *static_cast<uint64_t*>(p) == free_mark(p); }
MGE_NO_ASAN void set_free_mark(void* p, bool on) { *static_cast<uint64_t*>(p) = on ? free_mark(p) : 0; }

// Four classes per power of two: at most 25 % is lost to rounding.
int class_of(size_t bytes, size_t* rounded) {
  bytes = std::max(bytes, kAlign);
  int p = std::bit_width(bytes - 1);  // 2^(p-1) < bytes <= 2^p
  size_t step = std::max<size_t>((size_t{1} << p) / 8, kAlign);
  *rounded = align_up(bytes, step);
  if (p <= 9) return static_cast<int>(*rounded / kAlign);  // 64..512 by 64
  return 8 + (p - 10) * 4 + static_cast<int>((*rounded - (size_t{1} << (p - 1))) / step);
}

}  // namespace

struct Pool::Impl {
  std::string name;
  mutable std::mutex mutex;
  PoolStats stats;
  std::vector<void*> small[kClassCount];
  size_t small_size[kClassCount] = {};
  struct Slab {
    char* base;
    size_t carved;  // cut into blocks so far
  };
  std::vector<Slab> slabs;  // the last one is being cut
  size_t slab_left = 0;

  // Large blocks: all blocks by address (free or not), free ones also by (size, address).
  struct Block {
    size_t size;
    char* region;
    size_t region_size;
    bool free;
  };
  std::map<char*, Block> blocks;
  std::set<std::pair<size_t, char*>> free_blocks;

  char* map(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    madvise(p, bytes, MADV_HUGEPAGE);
    ASAN_POISON_MEMORY_REGION(p, bytes);
    ++stats.system_calls;
    stats.reserved += bytes;
    stats.max_reserved = std::max(stats.max_reserved, stats.reserved);
    return static_cast<char*>(p);
  }

  void* take_small(int cls, size_t rounded) {
    auto& list = small[cls];
    small_size[cls] = rounded;
    if (!list.empty()) {
      void* p = list.back();
      list.pop_back();
      set_free_mark(p, false);
      return p;
    }
    if (slab_left < rounded) {
      char* p = map(kSlab);
      if (!p) return nullptr;
      slabs.push_back({p, 0});
      slab_left = kSlab;
    }
    Slab& slab = slabs.back();
    void* p = slab.base + slab.carved;
    slab.carved += rounded;
    slab_left -= rounded;
    return p;
  }

  void give_small(int cls, void* p) {
    MGE_ASSERT(!has_free_mark(p), "a block was freed twice");
    set_free_mark(p, true);
    small[cls].push_back(p);
  }

  void* take_large(size_t bytes) {
    auto it = free_blocks.lower_bound({bytes, nullptr});
    if (it == free_blocks.end()) {
      size_t want = bytes >= kRegion ? align_up(bytes, kSlab) : kRegion;
      char* p = map(want);
      if (!p) return nullptr;
      blocks[p] = {want, p, want, true};
      it = free_blocks.insert({want, p}).first;
    }
    char* p = it->second;
    free_blocks.erase(it);
    Block& b = blocks[p];
    b.free = false;
    if (b.size - bytes >= kSmallMax) {  // split; a smaller rest would only fragment
      Block rest{b.size - bytes, b.region, b.region_size, true};
      b.size = bytes;
      blocks[p + bytes] = rest;
      free_blocks.insert({rest.size, p + bytes});
    }
    return p;
  }

  void give_large(char* p) {
    auto it = blocks.find(p);
    MGE_ASSERT(it != blocks.end() && !it->second.free, "a block was freed twice");
    it->second.free = true;
    auto next = std::next(it);
    if (next != blocks.end() && next->second.free && next->second.region == it->second.region) {
      free_blocks.erase({next->second.size, next->first});
      it->second.size += next->second.size;
      blocks.erase(next);
    }
    if (it != blocks.begin()) {
      auto prev = std::prev(it);
      if (prev->second.free && prev->second.region == it->second.region) {
        free_blocks.erase({prev->second.size, prev->first});
        prev->second.size += it->second.size;
        blocks.erase(it);
        it = prev;
      }
    }
    free_blocks.insert({it->second.size, it->first});
  }

  void unmap(char* p, size_t bytes) {
    unmap_pages(p, bytes);
    stats.reserved -= bytes;
  }

  // A slab is wholly free when its free blocks add up to all that was cut from it.
  void trim_slabs() {
    struct Use {
      char* base;
      size_t carved, free;
    };
    std::vector<Use> uses;
    for (auto& s : slabs) uses.push_back({s.base, s.carved, 0});
    std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.base < b.base; });
    auto use_of = [&](void* p) -> Use& {
      auto it = std::upper_bound(uses.begin(), uses.end(), static_cast<char*>(p),
                                 [](char* q, const Use& u) { return q < u.base; });
      return *std::prev(it);
    };
    for (int c = 0; c < kClassCount; ++c)
      for (void* p : small[c]) use_of(p).free += small_size[c];
    auto whole = [](const Use& u) { return u.free == u.carved; };
    for (auto& list : small) std::erase_if(list, [&](void* p) { return whole(use_of(p)); });
    if (!slabs.empty() && whole(use_of(slabs.back().base))) slab_left = 0;
    for (auto& u : uses)
      if (whole(u)) unmap(u.base, kSlab);
    std::erase_if(slabs, [&](const Slab& s) { return whole(use_of(s.base)); });
  }

  size_t trim() {
    size_t before = stats.reserved;
    for (auto it = blocks.begin(); it != blocks.end();) {
      if (it->second.free && it->second.size == it->second.region_size) {
        free_blocks.erase({it->second.size, it->first});
        unmap(it->first, it->second.size);
        it = blocks.erase(it);
      } else {
        ++it;
      }
    }
    trim_slabs();
    return before - stats.reserved;
  }

  size_t largest_free() const {
    size_t best = free_blocks.empty() ? 0 : free_blocks.rbegin()->first;
    for (int c = 0; c < kClassCount; ++c)
      if (!small[c].empty()) best = std::max(best, small_size[c]);
    return std::max(best, slab_left);
  }

  // All there is to know when memory runs out: who asked for how much, and where the rest is.
  std::string report(size_t asked) const {
    return format("{} bytes asked, {} in use in {} blocks (peak {}), {} reserved, largest free block {}", asked,
                  stats.allocated, stats.blocks, stats.max_allocated, stats.reserved, largest_free());
  }
};

Pool::Pool(std::string name) : impl_(new Impl) { impl_->name = std::move(name); }

Pool::~Pool() {
  for (auto& [at, block] : impl_->blocks)
    if (at == block.region) unmap_pages(at, block.region_size);
  for (auto& s : impl_->slabs) unmap_pages(s.base, kSlab);
  delete impl_;
}

namespace {

// The pools of all devices, made when first used and leaked: storages may die after static destruction.
struct PoolTable {
  std::atomic<Pool*> pools[3][kMaxDevices] = {};
  std::mutex mutex;
  template <class F>
  void each(F f) {
    for (auto& kind : pools)
      for (auto& p : kind)
        if (Pool* pool = p.load(std::memory_order_acquire)) f(*pool);
  }
};
PoolTable& pool_table() {
  static PoolTable* t = new PoolTable;
  return *t;
}

}  // namespace

Pool& Pool::of(Device device) {
  PoolTable& t = pool_table();
  auto& slot = t.pools[static_cast<int>(device.kind)][device.index];
  if (Pool* p = slot.load(std::memory_order_acquire)) return *p;
  // A child must not inherit a lock held by a thread it does not have.
  static const int watched = pthread_atfork(
      [] {
        pool_table().mutex.lock();
        pool_table().each([](Pool& p) { p.impl_->mutex.lock(); });
      },
      [] {
        pool_table().each([](Pool& p) { p.impl_->mutex.unlock(); });
        pool_table().mutex.unlock();
      },
      [] {
        pool_table().each([](Pool& p) { p.impl_->mutex.unlock(); });
        pool_table().mutex.unlock();
      });
  (void)watched;
  std::lock_guard<std::mutex> lock(t.mutex);
  if (!slot.load()) slot.store(new Pool(device.name()), std::memory_order_release);
  return *slot.load();
}

size_t Pool::trim_all() {
  size_t bytes = 0;
  pool_table().each([&](Pool& p) { bytes += p.trim(); });
  return bytes;
}

void* Pool::allocate(size_t bytes) {
  Impl& s = *impl_;
  std::lock_guard<std::mutex> lock(s.mutex);
  void* p = nullptr;
  size_t counted = 0;
  if (bytes <= SIZE_MAX - kSlab) {  // above, rounding up would wrap around
    counted = align_up(std::max<size_t>(bytes, 1), kAlign);
    if (s.stats.limit && counted > s.stats.limit - s.stats.allocated)
      fail(ErrorKind::Memory,
           "memory limit of {} ({} bytes): {}. Free tensors, use a smaller batch, or raise set_memory_limit.", s.name,
           s.stats.limit, s.report(counted));
    auto take = [&] {
      if (counted > kSmallMax) return s.take_large(align_up(counted, 4096));
      size_t rounded;
      int cls = class_of(counted, &rounded);
      return s.take_small(cls, rounded);
    };
    p = take();
    if (!p && s.trim() > 0) p = take();
  }
  if (!p)
    fail(ErrorKind::Memory, "out of memory on {}: {}. Free tensors or use a smaller batch.", s.name, s.report(bytes));
  s.stats.allocated += counted;
  s.stats.max_allocated = std::max(s.stats.max_allocated, s.stats.allocated);
  ++s.stats.allocations;
  ++s.stats.blocks;
  ASAN_UNPOISON_MEMORY_REGION(p, bytes);
  return p;
}

void Pool::free(void* ptr, size_t bytes) {
  Impl& s = *impl_;
  std::lock_guard<std::mutex> lock(s.mutex);
  size_t counted = align_up(std::max<size_t>(bytes, 1), kAlign);
  if (counted <= kSmallMax) {
    size_t rounded;
    int cls = class_of(counted, &rounded);
    s.give_small(cls, ptr);
  } else {
    s.give_large(static_cast<char*>(ptr));
  }
  ASAN_POISON_MEMORY_REGION(ptr, counted);
  s.stats.allocated -= counted;
  --s.stats.blocks;
}

void Pool::set_limit(size_t bytes) {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  MGE_CHECK(bytes == 0 || bytes >= impl_->stats.allocated, Value,
            "set_memory_limit: {} bytes are in use already; the limit {} is below that.", impl_->stats.allocated,
            bytes);
  impl_->stats.limit = bytes;
}

PoolStats Pool::stats() const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->stats;
}

void Pool::reset_peak() {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->stats.max_allocated = impl_->stats.allocated;
  impl_->stats.max_reserved = impl_->stats.reserved;
}

size_t Pool::trim() {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->trim();
}

size_t Pool::largest_free() const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->largest_free();
}

Storage::~Storage() {
  if (pool) pool->free(ptr, bytes);
  if (owner) owner();
}

RefPtr<Storage> allocate_storage(Device device, size_t bytes) {
  Pool& pool = Pool::of(device);
  void* p = pool.allocate(bytes);
  auto s = make_ref<Storage>();
  s->ptr = p;
  s->bytes = bytes;
  s->device = device;
  s->pool = &pool;
  return s;
}

RefPtr<Storage> wrap_storage(void* ptr, size_t bytes, bool writable, std::function<void()> owner) {
  auto s = make_ref<Storage>();
  s->ptr = ptr;
  s->bytes = bytes;
  s->writable = writable;
  s->owner = std::move(owner);
  return s;
}

}  // namespace mge
