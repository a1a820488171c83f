// Our declarations against those of the toolkit's header, where it is installed.
#include "kernel/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace {

// The same to the caller: pointers, numbers of one size (an enum is an int), nothing else.
template <class A, class B>
constexpr bool kSame = std::is_void_v<A> == std::is_void_v<B>&& std::is_pointer_v<A> == std::is_pointer_v<B> &&
                       sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
template <class A, class B>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return kSame<R, S> && (kSame<A, B> && ...);
  }();
};
#define MGE_SAME(name, symbol, arguments) \
  static_assert(SameFunction<mge::cuda::CUresult(*) arguments, decltype(&::name)>::value, #name);

}  // namespace

namespace mge::cuda {
MGE_CUDA_DRIVER(MGE_SAME)
#define MGE_EQUAL(name) static_assert(static_cast<int>(mge::cuda::name) == static_cast<int>(::name), #name);
MGE_EQUAL(CUDA_ERROR_OUT_OF_MEMORY)
MGE_EQUAL(CUDA_ERROR_DEINITIALIZED)
MGE_EQUAL(CUDA_ERROR_NOT_READY)
MGE_EQUAL(CUDA_ERROR_ILLEGAL_ADDRESS)
MGE_EQUAL(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
MGE_EQUAL(CU_STREAM_NON_BLOCKING)
MGE_EQUAL(CU_EVENT_DISABLE_TIMING)
MGE_EQUAL(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
MGE_EQUAL(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
MGE_EQUAL(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
MGE_EQUAL(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
MGE_EQUAL(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
MGE_EQUAL(CU_STREAM_CAPTURE_MODE_RELAXED)
}  // namespace mge::cuda
#endif
