// What a kernel on a device needs to word an error that shows when its work is done (kernel/launch.cpp).
#pragma once
#include <functional>

namespace mge {

/// Inside a kernel's run() on a stream: adds what the kernel could not know to the error in flight, called in a catch
/// block. Empty: nothing to add. Copy it to call it later.
const std::function<void()>& late_rethrow();

}  // namespace mge
