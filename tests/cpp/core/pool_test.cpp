#include "core/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/storage.h"

namespace mge {
namespace {

constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

Error caught(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::Internal, ""};
}

TEST(PoolTest, StatisticsAreExact) {
  Pool pool;
  EXPECT_EQ(pool.stats().allocated, 0u);
  EXPECT_EQ(pool.stats().reserved, 0u);
  void* a = pool.allocate(1);  // every block counts in whole cache lines
  EXPECT_EQ(pool.stats().allocated, 64u);
  void* b = pool.allocate(65);
  EXPECT_EQ(pool.stats().allocated, 64u + 128u);
  void* c = pool.allocate(3 * kMiB);
  EXPECT_EQ(pool.stats().allocated, 192u + 3 * kMiB);
  EXPECT_EQ(pool.stats().max_allocated, 192u + 3 * kMiB);
  EXPECT_EQ(pool.stats().allocations, 3u);
  pool.free(c, 3 * kMiB);
  EXPECT_EQ(pool.stats().allocated, 192u);
  EXPECT_EQ(pool.stats().max_allocated, 192u + 3 * kMiB);
  pool.reset_peak();
  EXPECT_EQ(pool.stats().max_allocated, 192u);
  EXPECT_EQ(pool.stats().max_reserved, pool.stats().reserved);
  void* zero = pool.allocate(0);
  EXPECT_NE(zero, nullptr);
  EXPECT_EQ(pool.stats().allocated, 256u);
  pool.free(zero, 0);
  pool.free(b, 65);
  pool.free(a, 1);
  EXPECT_EQ(pool.stats().allocated, 0u);
  EXPECT_EQ(pool.stats().allocations, 4u);
}

TEST(PoolTest, FreedMemoryIsUsedAgain) {
  Pool pool;
  for (size_t bytes : {size_t{64}, size_t{1000}, 100 * kKiB, 256 * kKiB, 300 * kKiB, 5 * kMiB, 40 * kMiB}) {
    void* a = pool.allocate(bytes);
    pool.free(a, bytes);
    uint64_t calls = pool.stats().system_calls;
    for (int i = 0; i < 10; ++i) {
      void* b = pool.allocate(bytes);
      EXPECT_EQ(b, a) << bytes;
      pool.free(b, bytes);
    }
    EXPECT_EQ(pool.stats().system_calls, calls) << bytes;
  }
}

TEST(PoolTest, HardLimitIsHonouredToTheByte) {
  Pool pool;
  void* a = pool.allocate(1 * kMiB);
  pool.set_limit(2 * kMiB);
  EXPECT_EQ(pool.stats().limit, 2 * kMiB);
  void* b = pool.allocate(1 * kMiB);  // exactly at the limit
  PoolStats before = pool.stats();
  Error e = caught([&] { pool.allocate(1); });
  EXPECT_EQ(e.kind(), ErrorKind::Memory);
  EXPECT_EQ(e.text(),
            "memory limit of cpu0 (2097152 bytes): 64 bytes asked, 2097152 in use in 2 blocks (peak 2097152), 33554432 "
            "reserved, largest free block 31457280. Free tensors, use a smaller batch, or raise set_memory_limit.");
  EXPECT_EQ(pool.stats().allocated, before.allocated) << "a refused request leaves no trace";
  EXPECT_EQ(pool.stats().allocations, before.allocations);
  pool.free(b, 1 * kMiB);
  b = pool.allocate(1 * kMiB - 64);
  void* c = pool.allocate(64);
  EXPECT_THROW(pool.allocate(0), Error);
  e = caught([&] { pool.set_limit(1 * kMiB); });
  EXPECT_EQ(e.kind(), ErrorKind::Value);
  EXPECT_EQ(e.text(), "set_memory_limit: 2097152 bytes are in use already; the limit 1048576 is below that.");
  EXPECT_EQ(pool.stats().limit, 2 * kMiB);
  pool.set_limit(0);
  pool.free(pool.allocate(8 * kMiB), 8 * kMiB);
  pool.free(a, 1 * kMiB);
  pool.free(b, 1 * kMiB - 64);
  pool.free(c, 64);
}

TEST(PoolTest, EachDeviceHasItsOwn) {
  Device one{DeviceKind::Cpu, 1}, two{DeviceKind::Cpu, 2};
  Pool &a = Pool::of(one), &b = Pool::of(two);
  EXPECT_EQ(&a, &Pool::of(one));
  EXPECT_NE(&a, &b);
  size_t before = b.stats().allocated;
  auto s = allocate_storage(one, 4 * kMiB);
  EXPECT_EQ(b.stats().allocated, before);
  EXPECT_GE(a.stats().allocated, 4 * kMiB);
  a.set_limit(a.stats().allocated);
  Error e = caught([&] { allocate_storage(one, 64); });
  EXPECT_THAT(e.text(), testing::HasSubstr("memory limit of cpu1"));
  allocate_storage(two, 64);  // its limit is its own
  a.set_limit(0);
  s = nullptr;
  EXPECT_GT(Pool::trim_all(), 0u);
  EXPECT_EQ(a.stats().reserved, 0u);
}

TEST(PoolTest, ImpossibleRequestsAreMemoryErrors) {
  Pool pool;
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2, size_t{1} << 61}) {
    Error e = caught([&] { pool.allocate(bytes); });
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_THAT(e.text(), testing::HasSubstr("out of memory")) << bytes;
    EXPECT_THAT(e.text(), testing::HasSubstr(std::to_string(bytes))) << bytes;
    pool.set_limit(1 * kMiB);
    EXPECT_EQ(caught([&] { pool.allocate(bytes); }).kind(), ErrorKind::Memory);
    pool.set_limit(0);
  }
  EXPECT_EQ(pool.stats().allocated, 0u);
  pool.free(pool.allocate(100), 100);  // goes on
}

TEST(PoolTest, NeighboursCoalesceInEveryOrder) {
  int order[4] = {0, 1, 2, 3};
  do {
    Pool pool;
    void* p[4];
    for (auto& x : p) x = pool.allocate(8 * kMiB);  // four quarters of one region
    ASSERT_EQ(pool.stats().system_calls, 1u);
    for (int i : order) pool.free(p[i], 8 * kMiB);
    void* whole = pool.allocate(32 * kMiB);
    EXPECT_EQ(pool.stats().system_calls, 1u) << "the quarters did not become one block again";
    pool.free(whole, 32 * kMiB);
    EXPECT_EQ(pool.trim(), 32 * kMiB);
  } while (std::next_permutation(order, order + 4));
}

TEST(PoolTest, BestFitTakesTheSmallestHole) {
  Pool pool;
  void* a = pool.allocate(4 * kMiB);
  void* wall1 = pool.allocate(1 * kMiB);
  void* b = pool.allocate(2 * kMiB);
  void* wall2 = pool.allocate(1 * kMiB);
  pool.free(a, 4 * kMiB);
  pool.free(b, 2 * kMiB);
  void* c = pool.allocate(2 * kMiB);
  EXPECT_EQ(c, b);
  void* d = pool.allocate(3 * kMiB);
  EXPECT_EQ(d, a);
  for (auto [p, n] : {std::pair<void*, size_t>{c, 2 * kMiB}, {d, 3 * kMiB}, {wall1, kMiB}, {wall2, kMiB}})
    pool.free(p, n);
  EXPECT_EQ(pool.stats().allocated, 0u);
}

// What was had in pieces serves one large block: a traced program after the call that recorded it.
TEST(PoolTest, FreePiecesGoBackBeforeALargeBlockIsMapped) {
  Pool pool;
  std::vector<void*> pieces;
  for (int i = 0; i < 40; ++i) pieces.push_back(pool.allocate(10 * kMiB));
  const size_t most = pool.stats().reserved;
  void* kept = pieces[20];  // its region cannot go, but the pages around it can
  for (void* p : pieces)
    if (p != kept) pool.free(p, 10 * kMiB);
  std::memset(kept, 1, 10 * kMiB);
  void* all = pool.allocate(380 * kMiB);
  EXPECT_LE(pool.stats().max_reserved, most + 32 * kMiB);
  EXPECT_GE(pool.stats().reserved, pool.stats().allocated);
  EXPECT_EQ(static_cast<char*>(kept)[10 * kMiB - 1], 1);
  // Pieces again, in what is left of the region and in the large block once that is free.
  pool.free(all, 380 * kMiB);
  std::vector<void*> again;
  for (int i = 0; i < 38; ++i) {
    again.push_back(pool.allocate(10 * kMiB));
    std::memset(again.back(), 2, 4096);
  }
  EXPECT_LE(pool.stats().max_reserved, most + 32 * kMiB);
  EXPECT_GE(pool.stats().reserved, pool.stats().allocated);
  EXPECT_EQ(static_cast<char*>(kept)[0], 1);
  for (void* p : again) pool.free(p, 10 * kMiB);
  pool.free(kept, 10 * kMiB);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
}

TEST(PoolTest, TrimGivesWhollyFreeMemoryBack) {
  Pool pool;
  void* large = pool.allocate(40 * kMiB);
  std::vector<void*> small;
  for (int i = 0; i < 100; ++i) small.push_back(pool.allocate(100 * kKiB));  // several slabs
  void* pinned = pool.allocate(64);
  EXPECT_EQ(pool.trim(), 0u) << "all is in use";
  size_t reserved = pool.stats().reserved;
  pool.free(large, 40 * kMiB);
  EXPECT_GE(pool.trim(), 40 * kMiB);
  EXPECT_LE(pool.stats().reserved, reserved - 40 * kMiB);
  for (void* p : small) pool.free(p, 100 * kKiB);
  EXPECT_GE(pool.trim(), 8 * kMiB) << "slabs of small blocks go back too";
  EXPECT_LE(pool.stats().reserved, 4 * kMiB);
  std::memset(pinned, 1, 64);  // what is in use stays mapped
  pool.free(pinned, 64);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0u);
  EXPECT_EQ(pool.trim(), 0u);
  for (size_t bytes : {size_t{64}, 100 * kKiB, 3 * kMiB}) {  // and life goes on
    void* p = pool.allocate(bytes);
    std::memset(p, 2, bytes);
    pool.free(p, bytes);
  }
}

TEST(PoolTest, FreeingTwiceIsNoticed) {
  Pool pool;
  for (size_t bytes : {size_t{64}, size_t{5000}, 4 * kMiB}) {
    void* a = pool.allocate(bytes);
    void* wall = pool.allocate(bytes);
    std::memset(a, 0, bytes);
    pool.free(a, bytes);
    PoolStats before = pool.stats();
    Error e = caught([&] { pool.free(a, bytes); });
    EXPECT_EQ(e.kind(), ErrorKind::Internal) << bytes;
    EXPECT_THAT(e.text(), testing::HasSubstr("freed twice")) << bytes;
    EXPECT_EQ(pool.stats().allocated, before.allocated) << "counters stay true";
    void* b = pool.allocate(bytes);
    void* c = pool.allocate(bytes);
    EXPECT_NE(b, c) << "one block was handed out twice";
    for (void* p : {b, c, wall}) pool.free(p, bytes);
  }
}

/// Shadow of what the pool handed out: no overlap, alignment, contents kept, counters.
class Shadow {
 public:
  explicit Shadow(Pool& pool) : pool_(pool) {}
  void allocate(size_t bytes, uint8_t tag) {
    auto* p = static_cast<uint8_t*>(pool_.allocate(bytes));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    auto next = live_.lower_bound(p);
    if (next != live_.end()) {
      ASSERT_LE(p + bytes, next->first) << "overlaps the block behind";
    }
    if (next != live_.begin()) {
      auto prev = std::prev(next);
      ASSERT_LE(prev->first + prev->second.bytes, p) << "overlaps the block before";
    }
    live_[p] = {bytes, tag};
    counted_ += (bytes + 63) / 64 * 64;
    touch(p, bytes, [&](uint8_t& x) { x = tag; });
  }
  void free(size_t nth) {
    auto it = std::next(live_.begin(), static_cast<int64_t>(nth % live_.size()));
    auto [bytes, tag] = it->second;
    int wrong = 0;
    touch(it->first, bytes, [&, t = tag](uint8_t& x) { wrong += x != t; });
    ASSERT_EQ(wrong, 0) << "somebody else wrote into a block in use";
    pool_.free(it->first, bytes);
    counted_ -= (bytes + 63) / 64 * 64;
    live_.erase(it);
  }
  size_t size() const { return live_.size(); }
  size_t counted() const { return counted_; }

 private:
  template <class F>
  static void touch(uint8_t* p, size_t bytes, F f) {  // both ends and a byte on each page
    for (size_t i = 0; i < bytes; i += 4096) f(p[i]);
    f(p[bytes - 1]);
  }
  struct Block {
    size_t bytes;
    uint8_t tag;
  };
  Pool& pool_;
  std::map<uint8_t*, Block> live_;
  size_t counted_ = 0;
};

TEST(PoolTest, RandomTrafficAgainstAShadow) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    Pool pool;
    Shadow shadow(pool);
    std::mt19937 rng(seed);
    size_t peak = 0;
    auto some_size = [&]() -> size_t {
      switch (rng() % 10) {
        case 0:
          return 1 + rng() % (6 * kMiB);
        case 1:
          return 200 * kKiB + rng() % (120 * kKiB);  // around the border between small and large
        case 2:
          return 64u << (rng() % 13);
        default:
          return 1 + rng() % 20000;
      }
    };
    for (int step = 0; step < 6000; ++step) {
      bool grow = shadow.size() == 0 || rng() % 100 < (step / 1000 % 2 ? 35u : 60u);
      if (grow)
        shadow.allocate(some_size(), static_cast<uint8_t>(rng()));
      else
        shadow.free(rng());
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
      if (step % 500 == 0) pool.trim();
      peak = std::max(peak, shadow.counted());
      PoolStats s = pool.stats();
      ASSERT_EQ(s.allocated, shadow.counted()) << "seed " << seed << " step " << step;
      ASSERT_EQ(s.max_allocated, peak);
      ASSERT_GE(s.reserved, s.allocated);
    }
    // Best fit with coalescing: what the system gave stays within a small factor of the most ever in use.
    EXPECT_LT(pool.stats().max_reserved, peak * 2 + 64 * kMiB) << "peak " << peak;
    while (shadow.size()) shadow.free(rng());
    EXPECT_EQ(pool.stats().allocated, 0u);
    pool.trim();
    EXPECT_EQ(pool.stats().reserved, 0u) << "everything is free, so everything goes back";
  }
}

TEST(PoolTest, ManyThreads) {
  Pool pool;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 rng(t);
      std::vector<std::pair<uint32_t*, size_t>> mine;
      for (int i = 0; i < 3000; ++i) {
        if (mine.size() < 20 && rng() % 2) {
          size_t bytes = rng() % 50 ? 4 + rng() % 8000 : 300 * kKiB + rng() % kMiB;
          auto* p = static_cast<uint32_t*>(pool.allocate(bytes));
          *p = t * 1000003u + static_cast<uint32_t>(bytes);
          mine.push_back({p, bytes});
        } else if (!mine.empty()) {
          auto [p, bytes] = mine.back();
          mine.pop_back();
          wrong += *p != t * 1000003u + static_cast<uint32_t>(bytes);
          pool.free(p, bytes);
        }
        if (i % 1000 == 0) pool.trim();
      }
      for (auto [p, bytes] : mine) pool.free(p, bytes);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.stats().allocated, 0u);
}

// A child forked while another thread held the pool's lock must still be able to allocate and free.
TEST(PoolTest, ForkedChildCanAllocate) {
  Pool& pool = Pool::of({});
  void* inherited = pool.allocate(1000);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) pool.free(pool.allocate(400 * kKiB), 400 * kKiB);
  });
  for (int i = 0; i < 30; ++i) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(10);
      pool.free(inherited, 1000);
      for (size_t bytes : {size_t{64}, 2 * kMiB}) pool.free(pool.allocate(bytes), bytes);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child hung or crashed, fork " << i;
  }
  stop = true;
  busy.join();
  pool.free(inherited, 1000);
}

TEST(StorageTest, ReturnsItsMemoryToThePool) {
  Pool& pool = Pool::of({});
  size_t before = pool.stats().allocated;
  RefPtr<Storage> a = allocate_storage({}, 1000);
  EXPECT_EQ(a->bytes, 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->ptr) % 64, 0u);
  EXPECT_TRUE(a->writable);
  EXPECT_EQ(pool.stats().allocated, before + 1024);
  RefPtr<Storage> b = a;
  a = nullptr;
  EXPECT_EQ(pool.stats().allocated, before + 1024);
  b = nullptr;
  EXPECT_EQ(pool.stats().allocated, before);
}

TEST(StorageTest, WrappedMemoryTellsItsOwnerOnce) {
  int released = 0;
  char bytes[16];
  size_t before = Pool::of({}).stats().allocated;
  {
    RefPtr<Storage> s = wrap_storage(bytes, 16, false, [&] { ++released; });
    RefPtr<Storage> t = s;
    EXPECT_FALSE(s->writable);
    EXPECT_EQ(s->ptr, bytes);
    s = nullptr;
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  wrap_storage(bytes, 16, true, nullptr);
  EXPECT_EQ(Pool::of({}).stats().allocated, before);
}

}  // namespace
}  // namespace mge
