// The allocator of the process, so that a case can be refused memory: all of it above a limit, or the n-th piece. And
// the attack that does so: every allocation of loading and running a model fails once.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/pool.h"
#include "fuzz.h"
#include "lite-c/global_c.h"
#include "lite-c/network_c.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" int __lsan_do_recoverable_leak_check();
#endif

namespace fuzz {
namespace {

std::atomic<size_t> g_live{0};
size_t g_most = SIZE_MAX;
std::atomic<uint64_t> g_count{0}, g_from{UINT64_MAX}, g_to{0};

void* take(size_t bytes, size_t align) {
  const uint64_t n = g_count.fetch_add(1, std::memory_order_relaxed);
  if (n >= g_from.load(std::memory_order_relaxed) && n <= g_to.load(std::memory_order_relaxed)) return nullptr;
  if (bytes > g_most || g_live.load(std::memory_order_relaxed) > g_most - bytes) return nullptr;
  void* p = align > alignof(std::max_align_t) ? std::aligned_alloc(align, (bytes + align - 1) / align * align)
                                              : std::malloc(bytes ? bytes : 1);
  if (p) g_live.fetch_add(::malloc_usable_size(p), std::memory_order_relaxed);
  return p;
}
void give(void* p) {
  if (p) g_live.fetch_sub(::malloc_usable_size(p), std::memory_order_relaxed);
  std::free(p);
}
void* take_or_throw(size_t bytes, size_t align) {
  if (void* p = take(bytes, align)) return p;
  throw std::bad_alloc();
}

}  // namespace

void limit_memory(size_t bytes) { g_most = bytes; }
void fail_allocation(uint64_t n, uint64_t more) {
  g_to = 0;
  g_from = n ? g_count + n - 1 : UINT64_MAX;
  if (n) g_to = g_from + more;
}
uint64_t allocations() { return g_count; }

bool check_leaks() {
#if defined(__SANITIZE_ADDRESS__)
  if (__lsan_do_recoverable_leak_check()) finding("memory leaks");
  return true;
#else
  return false;
#endif
}

}  // namespace fuzz

// NOLINTBEGIN: the whole set, so that none of the library's is mixed in
void* operator new(size_t n) { return fuzz::take_or_throw(n, 0); }
void* operator new[](size_t n) { return fuzz::take_or_throw(n, 0); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return fuzz::take(n, 0); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return fuzz::take(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return fuzz::take_or_throw(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, std::align_val_t a) { return fuzz::take_or_throw(n, static_cast<size_t>(a)); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return fuzz::take(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return fuzz::take(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { fuzz::give(p); }
void operator delete[](void* p) noexcept { fuzz::give(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { fuzz::give(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { fuzz::give(p); }
void operator delete(void* p, size_t) noexcept { fuzz::give(p); }
void operator delete[](void* p, size_t) noexcept { fuzz::give(p); }
void operator delete(void* p, std::align_val_t) noexcept { fuzz::give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { fuzz::give(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { fuzz::give(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { fuzz::give(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { fuzz::give(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { fuzz::give(p); }
// NOLINTEND
