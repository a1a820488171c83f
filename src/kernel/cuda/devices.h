// CUDA devices, for whoever puts a program together: nothing of CUDA is touched until a device is asked for.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend.h"

namespace mge::cuda {

/// From now on the names "gpu0", "gpu0:1" … are understood where a driver and a GPU are. `folders` are those of Python
/// packages, asked for at the first use.
void offer_devices(std::function<std::vector<std::string>()> folders);

struct Properties {
  std::string name;
  size_t memory = 0;
  int major = 0, minor = 0, multiprocessors = 0;
};
/// A Value error when there is no such device.
Properties properties(int device);
/// Of the driver, 1000 * major + 10 * minor; -1 without one.
int driver_version();

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

}  // namespace mge::cuda
