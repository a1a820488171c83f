#include "kernel/cuda/pinned.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <vector>

#include "kernel/cuda/driver.h"

namespace mge::cuda {
namespace {

constexpr size_t kSmallest = 64, kSlab = 64 << 10;
constexpr size_t kMost = size_t{1} << 30;  // of all classes together
constexpr int kClasses = 21;               // 64 bytes to 64 MiB

struct Shelf {
  std::mutex mutex;
  std::vector<void*> free[kClasses];
  size_t taken = 0;
};
Shelf& shelf() {
  static auto* s = new Shelf;
  return *s;
}

}  // namespace

Pinned Pinned::take(size_t bytes) {
  Pinned out;
  if (bytes > kLargest) return out;
  const int cls = std::max(0, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)) - 6);
  const size_t size = kSmallest << cls;
  Shelf& s = shelf();
  std::lock_guard<std::mutex> lock(s.mutex);
  auto& list = s.free[cls];
  if (list.empty()) {
    const size_t slab = std::max(size, kSlab);  // small ones come many at a time
    void* p = nullptr;
    if (s.taken + slab > kMost ||
        driver().cuMemHostAlloc(&p, slab, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
      return out;
    s.taken += slab;
    for (size_t at = 0; at < slab; at += size) list.push_back(static_cast<char*>(p) + at);
  }
  out.p_ = list.back();
  out.cls_ = cls;
  list.pop_back();
  return out;
}

Pinned::~Pinned() {
  if (!p_) return;
  Shelf& s = shelf();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.free[cls_].push_back(p_);
}

}  // namespace mge::cuda
