#include "eager/fake_device.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace mge {
namespace {

struct FakeState {
  std::mutex mutex;
  int64_t delay = 0, fail_in = 0, run = 0;
  FakeFault fault = FakeFault::Kernel;
  bool lost[kMaxDevices] = {};
};
FakeState& state() {
  static FakeState* s = new FakeState;
  return *s;
}

}  // namespace

void fake_set_delay(int64_t microseconds) {
  MGE_CHECK(microseconds >= 0, Value, "fake device: the delay must not be negative; got {}.", microseconds);
  std::lock_guard<std::mutex> lock(state().mutex);
  state().delay = microseconds;
}

void fake_fail_at(int64_t nth, FakeFault fault) {
  MGE_CHECK(nth >= 0, Value, "fake device: the fault must be at op 1 or later; got {}.", nth);
  std::lock_guard<std::mutex> lock(state().mutex);
  state().fail_in = nth;
  state().fault = fault;
}

int64_t fake_ops_run() {
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().run;
}

void fake_reset() {
  FakeState& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.delay = s.fail_in = s.run = 0;
  for (bool& l : s.lost) l = false;
}

void fake_before_op(const std::string& op, Device device) {
  FakeState& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  ++s.run;
  bool due = s.fail_in > 0 && --s.fail_in == 0;
  FakeFault fault = s.fault;
  if (due && fault == FakeFault::Lost) s.lost[device.index] = true;
  bool lost = s.lost[device.index];
  int64_t delay = s.delay;
  lock.unlock();
  if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  MGE_CHECK(!lost, Env, "{}: device {} is lost. Tensors on other devices are not affected.", op, device.name());
  if (!due) return;
  MGE_CHECK(fault != FakeFault::Memory, Memory, "{}: out of memory on {}, as the test asked.", op, device.name());
  fail(ErrorKind::Env, "{}: injected fault on {}.", op, device.name());
}

}  // namespace mge
