#include "kernel/simd/nn_simd.h"

namespace mge {

void register_simd_nn(KernelRegistry& r) {
  simd_nn::register_matmul(r);
  simd_nn::register_conv2d(r);
  simd_nn::register_pool(r);
  simd_nn::register_batch_norm(r);
  simd_nn::register_layer_norm(r);
  simd_nn::register_softmax(r);
  simd_nn::register_optim(r);
  simd_nn::register_rng(r);
  simd_nn::register_sort(r);
  simd_nn::register_conv3d(r);
  simd_nn::register_recurrence(r);
  simd_nn::register_16bit(r);
}

const char* simd_nn::refuse_not_f32(const KernelArgs& a) {
  for (auto& t : a.in)
    if (is_float(t.dtype) && t.dtype != DType::F32) return "needs float32";
  return a.out[0].dtype == DType::F32 ? nullptr : "needs float32";
}

}  // namespace mge
