// GPU kernels without a GPU, for tests: the host's compiler builds their text, and a call loops over the grid. Threads
// of a block that meet (shuffles, barriers) are fibers. From then on the fake device computes with the kernels of the
// GPU.
//   emulate_cuda("c++");      tests/python/test_cuda_kernels.py
#pragma once
#include <string>

namespace mge::cuda {

/// `compiler` is the command that builds a shared library; empty: the fake device has the CPU's kernels again.
void emulate_cuda(const std::string& compiler);

}  // namespace mge::cuda
