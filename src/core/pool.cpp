#include "core/pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/backend.h"
#include "core/memory_source.h"

namespace mge {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallMax = 256 << 10;
constexpr size_t kSlab = 2 << 20;     // small blocks are cut from slabs of this size
constexpr size_t kRegion = 32 << 20;  // large regions are mapped in multiples of this while small, to coalesce well
constexpr int kClassCount = 64;

size_t align_up(size_t n, size_t a) { return (n + a - 1) / a * a; }

// Under AddressSanitizer, memory that is not handed out is poisoned to the byte, so that a kernel that leaves its
// tensor or uses one that was freed is caught as with malloc.
void poison([[maybe_unused]] Backend& b, [[maybe_unused]] void* p, [[maybe_unused]] size_t bytes,
            [[maybe_unused]] bool on) {
#if defined(__SANITIZE_ADDRESS__)
  b.poison(p, bytes, on);
#endif
}

// A set of streams. From the 63rd on they share a bit, and whoever waits for one waits for all of them.
using Streams = uint64_t;
constexpr int kLastBit = 63;
int bit_of(const Stream* s) { return s ? std::min(s->index, kLastBit) : 0; }

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
  Device device;
  Backend& backend;
  std::string name;
  mutable std::mutex mutex;
  PoolStats stats;
  explicit Impl(Device d) : device(d), backend(Backend::of(d.kind)), name(d.name()) {}

  struct Slab {
    char* base;
    uintptr_t key;                                  // address / kSlab
    size_t carved = 0;                              // cut into blocks so far
    uint64_t handed_out[kSlab / kAlign / 64] = {};  // by the first 64 bytes of a block
    uint64_t& word(char* p, uint64_t* bit) {
      const size_t i = static_cast<size_t>(p - base) / kAlign;
      *bit = uint64_t{1} << i % 64;
      return handed_out[i / 64];
    }
  };
  struct FreeBlock {
    char* at;
    Slab* slab;
    Streams used;  // by work that may not be done
  };
  // Each list has room for every block of its class that was cut, so that giving one back needs no memory.
  std::vector<FreeBlock> small[kClassCount];
  size_t small_size[kClassCount] = {}, small_cut[kClassCount] = {};
  std::unordered_map<uintptr_t, std::unique_ptr<Slab>> slabs;  // by key
  Slab* cut = nullptr;                                         // the one being cut
  Slab* last = nullptr;                                        // the one looked up last
  size_t slab_left = 0;

  // Large blocks: all blocks by address (free or not), free ones also by (size, address).
  using FreeSet = std::set<std::pair<size_t, char*>>;
  struct Block {
    size_t size;
    char* region;
    size_t region_size;
    bool free;
    Streams used = 0;
    size_t absent = 0;  // of a free one: bytes whose pages the system has; all of it after discard, else a bound
    FreeSet::node_type place = {};  // of one that is handed out: its entry among the free, so that it can go back there
  };
  std::map<char*, Block> blocks;
  FreeSet free_blocks;

  // The streams this device's work was enqueued on, to find them by their bit.
  std::vector<Stream*> streams;
  void remember(Stream* s) {
    if (s && std::find(streams.begin(), streams.end(), s) == streams.end()) streams.push_back(s);
  }
  void order(Stream* s, Streams used) {
    if (!s) return;
    for (Stream* other : streams)
      if (other != s && (used >> bit_of(other) & 1)) s->wait_for_stream(*other);
  }

  /// What runs out of memory half way leaves the books as they were.
  template <class Do, class Undo>
  static void undone_if_thrown(Do body, Undo undo) {
    try {
      body();
    } catch (...) {
      undo();
      throw;
    }
  }

  char* map(size_t bytes) {
    void* p = backend.map(device, bytes);
    if (!p) return nullptr;
    poison(backend, p, bytes, true);
    ++stats.system_calls;
    count_reserved(bytes);
    return static_cast<char*>(p);
  }
  void count_reserved(size_t more) {
    stats.reserved += more;
    stats.max_reserved = std::max(stats.max_reserved, stats.reserved);
  }

  Slab& slab_of(char* p) {
    const auto key = reinterpret_cast<uintptr_t>(p) / kSlab;
    if (__builtin_expect(last && last->key == key, 1)) return *last;
    auto it = slabs.find(key);
    MGE_ASSERT(it != slabs.end(), "a block that is not of this pool was freed");
    return *(last = it->second.get());
  }

  char* take_small(int cls, size_t rounded, Streams* used) {
    auto& list = small[cls];
    uint64_t bit;
    if (__builtin_expect(!list.empty(), 1)) {
      const FreeBlock b = list.back();
      list.pop_back();
      b.slab->word(b.at, &bit) |= bit;
      *used = b.used;
      return b.at;
    }
    small_size[cls] = rounded;
    if (list.capacity() <= small_cut[cls]) list.reserve(std::max<size_t>(2 * list.capacity(), 16));
    if (slab_left < rounded) {
      auto slab = std::make_unique<Slab>();
      char* p = map(kSlab);
      if (!p) return nullptr;
      slab->base = p;
      slab->key = reinterpret_cast<uintptr_t>(p) / kSlab;
      Slab* made = slab.get();
      undone_if_thrown([&] { slabs.emplace(made->key, std::move(slab)); }, [&] { unmap(p, kSlab); });
      cut = made;
      slab_left = kSlab;
    }
    ++small_cut[cls];
    char* p = cut->base + cut->carved;
    cut->word(p, &bit) |= bit;
    cut->carved += rounded;
    slab_left -= rounded;
    return p;
  }

  void give_small(int cls, char* p, Streams used) {
    Slab& slab = slab_of(p);
    uint64_t bit;
    uint64_t& word = slab.word(p, &bit);
    MGE_ASSERT(word & bit, "a block was freed twice");
    word ^= bit;
    small[cls].push_back({p, &slab, used});
  }

  char* take_large(size_t bytes, Streams* used) {
    auto it = free_blocks.lower_bound({bytes, nullptr});
    if (it == free_blocks.end()) {
      size_t want = bytes >= kRegion ? align_up(bytes, kSlab) : kRegion;
      give_back(want);
      char* p = map(want);
      if (!p) return nullptr;
      undone_if_thrown(
          [&] {
            blocks[p] = {want, p, want, true};
            it = free_blocks.insert({want, p}).first;
          },
          [&] {
            blocks.erase(p);
            unmap(p, want);
          });
    }
    char* p = it->second;
    Block& b = blocks.find(p)->second;
    if (b.size - bytes >= kSmallMax) {  // split; a smaller rest would only fragment
      const size_t rest = b.size - bytes;
      undone_if_thrown(
          [&] {
            blocks[p + bytes] = {rest, b.region, b.region_size, true, b.used};
            free_blocks.insert({rest, p + bytes});
          },
          [&] { blocks.erase(p + bytes); });
      b.size = bytes;
    }
    b.place = free_blocks.extract(it);
    b.free = false;
    *used = b.used;
    count_reserved(std::exchange(b.absent, 0));
    return p;
  }

  void give_large(char* p, Streams used) {
    auto it = blocks.find(p);
    MGE_ASSERT(it != blocks.end() && !it->second.free, "a block was freed twice");
    FreeSet::node_type place = std::move(it->second.place);
    it->second.free = true;
    it->second.used = used;
    auto next = std::next(it);
    if (next != blocks.end() && next->second.free && next->second.region == it->second.region) {
      free_blocks.erase({next->second.size, next->first});
      it->second.size += next->second.size;
      it->second.used |= next->second.used;
      it->second.absent += next->second.absent;
      blocks.erase(next);
    }
    if (it != blocks.begin()) {
      auto prev = std::prev(it);
      if (prev->second.free && prev->second.region == it->second.region) {
        free_blocks.erase({prev->second.size, prev->first});
        prev->second.size += it->second.size;
        prev->second.used |= it->second.used;
        prev->second.absent += it->second.absent;
        blocks.erase(it);
        it = prev;
      }
    }
    place.value() = {it->second.size, it->first};
    free_blocks.insert(std::move(place));
  }

  void unmap(char* p, size_t bytes) {
    poison(backend, p, bytes, false);  // the addresses may go to somebody else
    backend.unmap(device, p, bytes);
    stats.reserved -= bytes;
  }

  void drop_region(std::map<char*, Block>::iterator it) {
    free_blocks.erase({it->second.size, it->first});
    unmap(it->first, it->second.size);
    stats.reserved += it->second.absent;  // those were counted when they went
    blocks.erase(it);
  }

  // Free blocks none of which is large enough go, the largest first, until they make up for what is going to be mapped:
  // a program's arena takes the place of what ops had one by one. On devices with streams their work may still come.
  void give_back(size_t bytes) {
    if (!streams.empty()) return;
    for (size_t given = 0; given < bytes;) {
      auto it = std::find_if(free_blocks.rbegin(), free_blocks.rend(),
                             [&](auto& f) { return blocks[f.second].absent < f.first; });
      if (it == free_blocks.rend()) return;
      auto block = blocks.find(it->second);
      Block& b = block->second;
      const size_t present = b.size - b.absent;
      if (b.size == b.region_size)
        drop_region(block);
      else if (backend.discard(device, block->first, b.size))
        stats.reserved -= present, b.absent = b.size;
      else
        return;
      given += present;
    }
  }

  // A slab is wholly free when none of its blocks is handed out.
  void trim_slabs() {
    auto whole = [](const Slab& s) {
      return std::all_of(std::begin(s.handed_out), std::end(s.handed_out), [](uint64_t w) { return w == 0; });
    };
    for (int c = 0; c < kClassCount; ++c)
      small_cut[c] -= std::erase_if(small[c], [&](const FreeBlock& b) { return whole(*b.slab); });
    if (cut && whole(*cut)) slab_left = 0, cut = nullptr;
    last = nullptr;
    std::erase_if(slabs, [&](auto& entry) {
      if (!whole(*entry.second)) return false;
      unmap(entry.second->base, kSlab);
      return true;
    });
  }

  // The system takes pages at once, so what was enqueued comes first; without the lock, which that work may need.
  size_t trim(std::unique_lock<std::mutex>& lock) {
    if (!streams.empty()) {
      std::vector<Stream*> all = streams;
      lock.unlock();
      for (Stream* s : all) s->drain();
      lock.lock();
    }
    size_t before = stats.reserved;
    for (auto it = blocks.begin(); it != blocks.end();) {
      auto block = it++;
      if (block->second.free && block->second.size == block->second.region_size) drop_region(block);
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

Pool::Pool(Device device) : impl_(new Impl(device)) {}

Pool::~Pool() {
  for (auto& [at, block] : impl_->blocks)
    if (at == block.region) impl_->unmap(at, block.region_size);
  for (auto& [key, slab] : impl_->slabs) impl_->unmap(slab->base, kSlab);
  delete impl_;
}

namespace {

// The pools of all devices, made when first used and leaked: storages may die after static destruction.
struct PoolTable {
  std::atomic<Pool*> pools[kDeviceKinds][kMaxDevices] = {};
  std::mutex mutex;
  template <class F>
  void each(F f) {
    for (auto& kind : pools)
      for (auto& p : kind)
        if (Pool* pool = p.load(std::memory_order_acquire)) f(*pool);
  }
  std::vector<Pool*> forking;  // locked for the time of a fork; the child may have dropped some of them by its end
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
  static constexpr auto let_go = [] {
    PoolTable& all = pool_table();
    for (Pool* p : std::exchange(all.forking, {})) p->impl_->mutex.unlock();
    all.mutex.unlock();
  };
  static const int watched = pthread_atfork(
      [] {
        PoolTable& all = pool_table();
        all.mutex.lock();
        all.each([&](Pool& p) {
          p.impl_->mutex.lock();
          all.forking.push_back(&p);
        });
      },
      let_go, let_go);
  (void)watched;
  std::lock_guard<std::mutex> lock(t.mutex);
  if (!slot.load()) slot.store(new Pool(device), std::memory_order_release);
  return *slot.load();
}

size_t Pool::trim_all() {
  size_t bytes = 0;
  pool_table().each([&](Pool& p) { bytes += p.trim(); });
  return bytes;
}

void Pool::start_over(DeviceKind kind) {  // the old ones are left as they are: storages point at them
  for (auto& p : pool_table().pools[static_cast<int>(kind)]) p.store(nullptr);
}

void* Pool::allocate(size_t bytes, Stream* stream) {
  Impl& s = *impl_;
  std::unique_lock<std::mutex> lock(s.mutex);
  char* p = nullptr;
  size_t counted = 0;
  Streams used = 0;
  if (bytes <= SIZE_MAX - kSlab) {  // above, rounding up would wrap around
    counted = align_up(std::max<size_t>(bytes, 1), kAlign);
    if (s.stats.limit && counted > s.stats.limit - s.stats.allocated)
      fail(ErrorKind::Memory,
           "memory limit of {} ({} bytes): {}. Free tensors, use a smaller batch, or raise set_memory_limit.", s.name,
           s.stats.limit, s.report(counted));
    auto take = [&] {
      if (counted > kSmallMax) return s.take_large(align_up(counted, 4096), &used);
      size_t rounded;
      int cls = class_of(counted, &rounded);
      return s.take_small(cls, rounded, &used);
    };
    p = take();
    if (!p && s.trim(lock) > 0) p = take();
  }
  if (!p)
    fail(ErrorKind::Memory, "out of memory on {}: {}. Free tensors or use a smaller batch.", s.name, s.report(bytes));
  if (__builtin_expect(stream != nullptr, 0)) {
    s.remember(stream);
    s.order(stream, used);
  }
  s.stats.allocated += counted;
  s.stats.max_allocated = std::max(s.stats.max_allocated, s.stats.allocated);
  ++s.stats.allocations;
  ++s.stats.blocks;
  poison(s.backend, p, bytes, false);
  return p;
}

void Pool::free(void* ptr, size_t bytes, Stream* stream) {
  Impl& s = *impl_;
  std::lock_guard<std::mutex> lock(s.mutex);
  size_t counted = align_up(std::max<size_t>(bytes, 1), kAlign);
  const Streams used = Streams{1} << bit_of(stream);
  if (counted <= kSmallMax) {
    size_t rounded;
    int cls = class_of(counted, &rounded);
    s.give_small(cls, static_cast<char*>(ptr), used);
  } else {
    s.give_large(static_cast<char*>(ptr), used);
  }
  // Work on a stream may still use it; it is poisoned where nobody can be late.
  if (!stream) poison(s.backend, ptr, counted, true);
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
  std::unique_lock<std::mutex> lock(impl_->mutex);
  return impl_->trim(lock);
}

size_t Pool::largest_free() const {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->largest_free();
}

Storage::~Storage() {
  if (pool) pool->free(ptr, bytes, home);
  if (owner) owner();
}

namespace {

std::atomic<int> g_sources{0};  // UseMemory objects that live: without any, allocation pays one load
thread_local std::shared_ptr<MemorySource> t_source;

RefPtr<Storage> allocate_from(const std::shared_ptr<MemorySource>& source, size_t bytes) {
  auto take = [&](size_t n) {
    void* p = source->allocate(n, kAlign);
    MGE_CHECK(p, Memory, "memory: the allocator that the program gave has no {} bytes.", n);
    return p;
  };
  bytes = std::max<size_t>(bytes, 1);
  void* p = take(bytes);
  if (reinterpret_cast<uintptr_t>(p) % kAlign) {  // it does not look at the alignment: there is one inside of more
    source->free(p);
    p = take(bytes + kAlign);
  }
  const std::shared_ptr<void> block(p, [source](void* q) { source->free(q); });
  void* first = reinterpret_cast<void*>(align_up(reinterpret_cast<uintptr_t>(p), kAlign));  // NOLINT
  return wrap_storage(first, bytes, true, [block] {});
}

}  // namespace

UseMemory::UseMemory(std::shared_ptr<MemorySource> source) : on_(source != nullptr) {
  if (!on_) return;
  before_ = std::exchange(t_source, std::move(source));
  ++g_sources;
}
UseMemory::UseMemory(OfProcess) : before_(std::exchange(t_source, nullptr)), on_(true) { ++g_sources; }
UseMemory::~UseMemory() {
  if (!on_) return;
  --g_sources;
  t_source = std::move(before_);
}

RefPtr<Storage> allocate_storage(Device device, size_t bytes, Stream* home) {
  if (g_sources.load(std::memory_order_relaxed) && t_source && device.kind == DeviceKind::Cpu) [[unlikely]]
    return allocate_from(t_source, bytes);
  Pool& pool = Pool::of(device);
  auto s = make_ref<Storage>();
  s->ptr = pool.allocate(bytes, home);
  s->bytes = bytes;
  s->device = device;
  s->home = home;
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
