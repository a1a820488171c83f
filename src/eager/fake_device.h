// A device that exists for tests: host memory in a pool of its own, ops always queued, and trouble on demand.
//   enable_fake_devices();  fake_set_delay(500);  fake_fail_at(3, FakeFault::Kernel);   // the third op from now fails
#pragma once
#include <cstdint>
#include <string>

#include "core/device.h"

namespace mge {

enum class FakeFault : uint8_t {
  Kernel,  // this op fails
  Memory,  // this op finds no memory
  Lost,    // this op and all later ones of the device fail, until fake_reset
};

/// Every op takes at least so long.
void fake_set_delay(int64_t microseconds);
/// The nth op that runs on a fake device from now on (1 = the next) fails; 0 takes a fault back.
void fake_fail_at(int64_t nth, FakeFault fault);
/// Ops that have run since the last reset, failed ones too.
int64_t fake_ops_run();
/// No delay, no fault, count 0, devices alive.
void fake_reset();

/// The executor calls this before each op of a fake device; throws the fault that is due.
void fake_before_op(const std::string& op, Device device);

}  // namespace mge
