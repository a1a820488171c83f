// What a kernel for CUDA sees of the device: the stream its call belongs to, launches, memory for one call, and words
// through which code on the device tells of an error. run() enqueues and never waits.
//   launch(a, function, {blocks}, {256}, 0, arguments);
#pragma once
#include <functional>
#include <memory>

#include "core/storage.h"
#include "kernel/cuda/driver.h"
#include "kernel/cuda/library.h"
#include "kernel/kernel.h"

namespace mge::cuda {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

/// What kernels are compiled and sized for.
struct Arch {
  int major = 0, minor = 0;
  int sms = 0;           // multiprocessors
  int shared_optin = 0;  // bytes of shared memory that a block may have
  int number() const { return 10 * major + minor; }
};
const Arch& arch(int device);

/// The stream of the open work. Calls of libraries go there; the context of the device is current while run() is.
CUstream stream_of(const Work& work);
inline CUstream stream_of(const KernelArgs& a) { return stream_of(*a.work); }
inline int device_of(const KernelArgs& a) { return a.work->stream.device.index; }
/// The device's context. A kernel of a CUlibrary serves them all: cast the CUkernel to CUfunction.
CUcontext context_of(int device);

/// Enqueues a kernel; a refused launch is an error that names what was asked for. A grid without blocks is no launch.
void launch(const Work& work, CUfunction f, Dim grid, Dim block, unsigned shared, void** arguments);
inline void launch(const KernelArgs& a, CUfunction f, Dim grid, Dim block, unsigned shared, void** arguments) {
  launch(*a.work, f, grid, block, shared, arguments);
}

/// Four words that host and device both see, zero at first. A kernel that finds something wrong sets the first, once
/// (atomicCAS), and tells more in the others. When the work is done and the first is not zero, `raise` is called and
/// throws what the CPU's kernel would; op and line are added to it.
int64_t* error_words(Work& work, std::function<void(const int64_t* words)> raise);
inline int64_t* error_words(const KernelArgs& a, std::function<void(const int64_t* words)> raise) {
  return error_words(*a.work, std::move(raise));
}

/// Device memory for what this call enqueues: it goes back when the pointer dies, behind the work so far.
RefPtr<Storage> scratch(const KernelArgs& a, size_t bytes);
/// Host memory stays until the work is done.
void keep(Work& work, std::shared_ptr<const void> what);

/// Makes a device's context current for as long as it lives.
class Bind {
 public:
  explicit Bind(CUcontext c);
  ~Bind();
  Bind(const Bind&) = delete;

 private:
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

}  // namespace mge::cuda

namespace mge {
/// Adds the kernels for CUDA, and installs the strided copy; called when a device is first asked for.
void register_cuda_kernels(KernelRegistry& r);
}  // namespace mge
