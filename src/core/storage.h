// Memory blocks. RefPtr<Storage> s = allocate_storage(device, bytes); freed memory returns to the device's pool.
#pragma once
#include <cstddef>
#include <functional>

#include "base/ref.h"
#include "core/device.h"

namespace mge {

class Pool;

struct Storage : RefCounted {
  void* ptr = nullptr;
  size_t bytes = 0;
  Device device;
  Stream* home = nullptr;       // all work on this memory is enqueued there; null: done by the thread that asks
  Pool* pool = nullptr;         // null: memory belongs to `owner`
  std::function<void()> owner;  // called when the last reference goes (NumPy, DLPack, mapped file)
  bool writable = true;         // false: never donated (constants, exported or mapped memory)
  ~Storage();
};

/// 64-byte aligned, uninitialised; a Memory error with a report when the hard limit or the machine says no. Memory of a
/// device with streams is for work enqueued on `home` after this call; when the storage dies, work that is enqueued by
/// then may still use it.
RefPtr<Storage> allocate_storage(Device device, size_t bytes, Stream* home = nullptr);
/// Memory of the host that lives elsewhere; `owner` is run once, when the storage dies.
RefPtr<Storage> wrap_storage(void* ptr, size_t bytes, bool writable, std::function<void()> owner);

}  // namespace mge
