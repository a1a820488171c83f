#include "core/mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace mge {
namespace {

struct Ranges {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;  // by where they begin
};
Ranges& ranges() {
  static auto* r = new Ranges;  // leaked: networks of static objects may end later
  return *r;
}
uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

void note_mapped(const void* p, size_t bytes) {
  const std::lock_guard lock(ranges().mutex);
  ranges().bytes[address(p)] = bytes;
}

void forget_mapped(const void* p) {
  const std::lock_guard lock(ranges().mutex);
  ranges().bytes.erase(address(p));
}

bool is_mapped(const void* p, size_t bytes) {
  const std::lock_guard lock(ranges().mutex);
  auto after = ranges().bytes.upper_bound(address(p));
  if (after == ranges().bytes.begin()) return false;
  const auto& [begin, size] = *--after;
  return address(p) - begin <= size && bytes <= size - (address(p) - begin);
}

void drop_mapped(const void* p, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (address(p) + page - 1) / page * page, end = (address(p) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace mge
