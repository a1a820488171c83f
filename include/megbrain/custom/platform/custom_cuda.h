// What a custom operator for CUDA asks of its surroundings. This engine has no CUDA devices yet: an operator that is
// registered for "cuda" alone can be loaded, and is refused by name when it is run. These functions say so, too.
#pragma once
#include "megbrain/custom/custom.h"

#if !defined(__has_include) || !__has_include(<cuda_runtime_api.h>)
#error "megbrain/custom/platform/custom_cuda.h needs the CUDA toolkit: cuda_runtime_api.h was not found."
#endif
#include <cuda_runtime_api.h>

#pragma GCC visibility push(hidden)
namespace custom {

class CudaRuntimeArgs {
 public:
  CudaRuntimeArgs(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

 private:
  int device_;
  cudaStream_t stream_;
};

#define MGE_CUSTOM_NO_CUDA(name) \
  throw std::runtime_error(name ": there are no CUDA devices in this engine. Register the op for \"x86\", too.")
inline const CudaRuntimeArgs& get_cuda_runtime_args(const RuntimeArgs&) { MGE_CUSTOM_NO_CUDA("get_cuda_runtime_args"); }
inline int get_cuda_device_id(const Device&) { MGE_CUSTOM_NO_CUDA("get_cuda_device_id"); }
inline cudaStream_t get_cuda_stream(const Device&) { MGE_CUSTOM_NO_CUDA("get_cuda_stream"); }
inline const cudaDeviceProp* get_cuda_device_props(const Device&) { MGE_CUSTOM_NO_CUDA("get_cuda_device_props"); }
inline int get_max_threads_per_block(const Device&) { MGE_CUSTOM_NO_CUDA("get_max_threads_per_block"); }
inline int* get_max_threads_dim(const Device&) { MGE_CUSTOM_NO_CUDA("get_max_threads_dim"); }
inline int* get_max_grid_size(const Device&) { MGE_CUSTOM_NO_CUDA("get_max_grid_size"); }
#undef MGE_CUSTOM_NO_CUDA

}  // namespace custom
#pragma GCC visibility pop
