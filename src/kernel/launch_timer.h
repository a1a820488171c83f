// Who wants to know what kernels cost on a device installs a timer; without one a launch pays a load.
#pragma once
#include "core/backend.h"

namespace mge {

struct LaunchTimer {
  void (*begin)(Work& work);
  void (*end)(Work& work, const char* op, const char* kernel);
};
const LaunchTimer* launch_timer();
void set_launch_timer(const LaunchTimer* t);

}  // namespace mge
