#include "kernel/simd/register.h"

#include "kernel/kernel.h"

namespace mge {

void register_simd_kernels(KernelRegistry& r) {
  register_simd_elementwise(r);
  register_simd_reduce(r);
  register_simd_nn(r);
  register_simd_indexing(r);
  register_simd_gather(r);
  install_simd_moves();
}

}  // namespace mge
