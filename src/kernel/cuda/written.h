// Kernels that are written out in device/*.cuh, for the dtypes that a call has.
//   const Code& c = written("mge_fill", "fill", {{"T", DType::U16}});     typedef uint16_t T; #include ".../fill.cuh"
#pragma once
#include "kernel/cuda/engine.h"
#include "op/in_build.h"

namespace mge::cuda {

struct Type {
  const char* name;
  DType dtype;
};
/// Kernel `name` of device/<header>.cuh. `define` (lives for good) is put before the include, as it is.
const Code& written(const char* name, const char* header, std::initializer_list<Type> types, const char* define = "");

/// The integer dtype whose elements are as large, which moves bytes of any dtype; Bool: there is none.
DType carrier(DType t);
const char* refuse_packed(const KernelArgs& a);

/// dst[i] = src[i] over dst.shape, any strides on either side; a part of the call `a`.
void copy_on_device(const KernelArgs& a, const TensorArg& src, const TensorArg& dst);

/// Registers with the GPU's kernels.
inline void add(KernelRegistry& r, const char* op, const Kernel& k, KernelTier tier = KernelTier::Simd) {
  r.add(std::string(op), tier, k, DeviceKind::Cuda);
}

}  // namespace mge::cuda
