#include "kernel/simd/nn_simd.h"

namespace mge {

const char* simd_nn::refuse_not_f32(const KernelArgs& a) {
  for (auto& t : a.in)
    if (is_float(t.dtype) && t.dtype != DType::F32) return "needs float32";
  return a.out[0].dtype == DType::F32 ? nullptr : "needs float32";
}

}  // namespace mge
