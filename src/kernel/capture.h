// What a program has enqueued once, to be enqueued again in one call: a graph of the device (CUDA graphs).
#pragma once
#include <memory>

#include "core/backend.h"

namespace mge {

struct Capture {
  /// From now on what is enqueued for `work` is recorded instead of run. False: cannot.
  bool (*begin)(Work& work);
  /// The end of it. Null: something in it cannot be recorded, and nothing of it has run.
  std::shared_ptr<const void> (*end)(Work& work);
  /// Enqueues it as a part of `work`. Memory that it names must be what it was, and hold what is to be read.
  void (*replay)(Work& work, const std::shared_ptr<const void>& recording);
};
/// Of the kind of device; null: it records nothing.
const Capture* capture_of(DeviceKind kind);
void set_capture(DeviceKind kind, const Capture* c);

}  // namespace mge
