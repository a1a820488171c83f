// The caching allocator of one device: size classes for small blocks, best fit with coalescing for large ones, a hard
// limit that is never exceeded, and counters that tell the truth. Before it asks the system for more, it gives back as
// much of what is free here in pieces that are too small (docs/adr/0042-memory-of-programs.md). It keeps its books
// outside the memory it hands out, which the host may not be able to reach, and orders reuse by stream (a
// stream-ordered allocator): a block that one stream has used goes to another one behind the work of the first.
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
  /// In a forked child: the pools of a kind of device whose memory did not come along start over.
  static void start_over(DeviceKind kind);
  explicit Pool(Device device = {});
  /// Memory still handed out is unmapped with the rest; the pools of devices live as long as the process.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  /// For work enqueued on `stream` from now on. Throws a Memory error.
  void* allocate(size_t bytes, Stream* stream = nullptr);
  /// All that uses the block has been enqueued on `stream`.
  void free(void* ptr, size_t bytes, Stream* stream = nullptr);
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
