// The functions of the CUDA driver that are used here, declared by us: building needs no toolkit. Names, order of
// arguments and numbers are those of cuda.h, which tests/cpp/cuda holds them to where it is installed.
//   check(driver().cuMemAlloc(&p, bytes), "cuMemAlloc");
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace mge::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUlibrary = struct CUlib_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
};
enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
};
enum : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

// name here, symbol of the library, result and arguments
#define MGE_CUDA_DRIVER(F)                                                                                             \
  F(cuInit, "cuInit", (unsigned))                                                                                      \
  F(cuDriverGetVersion, "cuDriverGetVersion", (int*))                                                                  \
  F(cuGetErrorName, "cuGetErrorName", (CUresult, const char**))                                                        \
  F(cuGetErrorString, "cuGetErrorString", (CUresult, const char**))                                                    \
  F(cuDeviceGetCount, "cuDeviceGetCount", (int*))                                                                      \
  F(cuDeviceGet, "cuDeviceGet", (CUdevice*, int))                                                                      \
  F(cuDeviceGetName, "cuDeviceGetName", (char*, int, CUdevice))                                                        \
  F(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, CUdevice))                                                      \
  F(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, CUdevice))                                               \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                                      \
  F(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext*))                                                                  \
  F(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                                                   \
  F(cuMemGetInfo, "cuMemGetInfo_v2", (size_t*, size_t*))                                                               \
  F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                               \
  F(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                                          \
  F(cuMemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                                      \
  F(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr*, void*, unsigned))                        \
  F(cuMemFreeHost, "cuMemFreeHost", (void*))                                                                           \
  F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, size_t, CUstream))                           \
  F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, size_t, CUstream))                                 \
  F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
  F(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))        \
  F(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                                \
  F(cuStreamCreate, "cuStreamCreate", (CUstream*, unsigned))                                                           \
  F(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                             \
  F(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                                                  \
  F(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph*))                                                    \
  F(cuEventCreate, "cuEventCreate", (CUevent*, unsigned))                                                              \
  F(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                                               \
  F(cuEventQuery, "cuEventQuery", (CUevent))                                                                           \
  F(cuEventElapsedTime, "cuEventElapsedTime", (float*, CUevent, CUevent))                                              \
  F(cuLibraryLoadData, "cuLibraryLoadData", (CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned)) \
  F(cuLibraryUnload, "cuLibraryUnload", (CUlibrary))                                                                   \
  F(cuLibraryGetKernel, "cuLibraryGetKernel", (CUkernel*, CUlibrary, const char*))                                     \
  F(cuKernelSetAttribute, "cuKernelSetAttribute", (int, int, CUkernel, CUdevice))                                      \
  F(cuLaunchKernel, "cuLaunchKernel",                                                                                  \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))      \
  F(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, unsigned long long))                    \
  F(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                           \
  F(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))                                                           \
  F(cuGraphDestroy, "cuGraphDestroy", (CUgraph))

struct Driver {
#define MGE_CUDA_FIELD(name, symbol, arguments) CUresult(*name) arguments = nullptr;
  MGE_CUDA_DRIVER(MGE_CUDA_FIELD)
#undef MGE_CUDA_FIELD
};

/// Loads the library when first called; an Env error when it is not there.
const Driver& driver();
/// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string error_text(CUresult r);
/// A Memory error for want of memory, else an Env error: "cuMemAlloc: CUDA_ERROR_… (…)".
void check(CUresult r, const char* what);
/// Errors after which the context does nothing any more.
bool is_fatal(CUresult r);

}  // namespace mge::cuda
