// The caching allocator of one device: size classes for small blocks, best fit with coalescing for large ones, a hard
// limit that is never exceeded, and counters that tell the truth.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device.h"

namespace mge {

struct PoolStats {
  size_t allocated = 0, reserved = 0;          // handed out / taken from the system
  size_t max_allocated = 0, max_reserved = 0;  // since reset_peak
  size_t limit = 0;                            // 0 = none
  uint64_t allocations = 0, system_calls = 0;
  size_t blocks = 0;  // handed out now
};

class Pool {
 public:
  static Pool& of(Device device);
  /// Trims the pool of every device; returns the bytes given back.
  static size_t trim_all();
  explicit Pool(std::string name = "cpu0");
  /// Memory still handed out is unmapped with the rest; the pools of devices live as long as the process.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void* allocate(size_t bytes);  // throws a Memory error
  void free(void* ptr, size_t bytes);
  /// Counts only memory handed out. A limit below what is in use is a Value error. 0 removes it.
  void set_limit(size_t bytes);
  PoolStats stats() const;
  void reset_peak();
  /// Gives every wholly free region back to the system; returns the bytes given back.
  size_t trim();
  /// Bytes of the largest block that can be had without asking the system.
  size_t largest_free() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace mge
