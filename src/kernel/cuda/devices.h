// CUDA devices, for whoever puts a program together: nothing of CUDA is touched until a device is asked for.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend.h"

namespace mge::cuda {

/// From now on the names "gpu0", "gpu0:1" … are understood where a driver and a GPU are. `folders` are those of Python
/// packages, in which the wheels of NVIDIA are looked for.
void offer_devices(std::vector<std::string> folders);

struct Properties {
  std::string name;
  size_t memory = 0;
  int major = 0, minor = 0, multiprocessors = 0;
};
/// A Value error when there is no such device.
Properties properties(int device);
/// Of the driver, 1000 * major + 10 * minor; -1 without one.
int driver_version();

/// From now on what kernels take on the device is summed up, by op and kernel; programs run plainly meanwhile.
void start_times();
struct KernelTime {
  std::string what;
  int64_t count = 0;
  double ms = 0;
};
/// Waits for the devices; the most expensive first.
std::vector<KernelTime> stop_times();

/// What was looked for and what was found: "libcuda", its path or empty, why it is missing or empty.
struct Component {
  std::string name, path, missing;
};
std::vector<Component> components();

/// The raw handle of the stream that a comp node's work is enqueued on (DLPack's `stream`), and ordering against
/// others' streams. 0, 1 and 2 are the default streams of the driver.
uintptr_t raw_stream(Stream& stream);
/// What is enqueued on the raw stream from now on starts after all that `stream` has now.
void let_wait(uintptr_t raw, Stream& stream);
/// What is enqueued on `stream` from now on starts after all that the raw one has now.
void wait_for_raw(Stream& stream, uintptr_t raw);
/// Calls `fn` when all that is enqueued on `stream` now is done, and somebody has looked.
void call_behind(Stream& stream, std::function<void()> fn);

}  // namespace mge::cuda
