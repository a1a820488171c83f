// A device that exists for tests: what a GPU does to a program, on any machine. Its memory cannot be read or written by
// the host (a mapping without access; functions that run on its streams see it through a second one), work is
// asynchronous, streams run in any order that nothing forbids, and there is trouble on demand.
//   enable_fake_devices();  fake_set_delay(500);  fake_fail_at(3, FakeFault::Kernel);   // the third op from now fails
#pragma once
#include <cstdint>

#include "core/device.h"

namespace mge {

enum class FakeFault : uint8_t {
  Kernel,  // this op fails while it runs
  Memory,  // this op finds no memory
  Lost,    // this op and all later ones of the device fail, until fake_reset
};

/// From now on the names "fake0", "fake1:2" … are understood.
void enable_fake_devices();
/// Every op takes at least so long. The pause of one that has begun is over at once.
void fake_set_delay(int64_t microseconds);
/// The nth op that is enqueued on a fake device from now on (1 = the next) fails; 0 takes a fault back.
void fake_fail_at(int64_t nth, FakeFault fault);
/// Ops that have begun to run since the last reset, failed ones too.
int64_t fake_ops_run();
/// Which of the runnable streams comes next is drawn from this seed.
void fake_set_seed(uint64_t seed);
/// No delay (the pause of an op is over), no fault, count 0, devices alive.
void fake_reset();

}  // namespace mge
