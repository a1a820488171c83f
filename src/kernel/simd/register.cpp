#include "kernel/simd/register.h"

namespace mge {

void register_simd_kernels(KernelRegistry& r) {
  register_simd_families(r);
  simd_nn::register_through_float(r);  // asked after the kernels of each op itself
  install_simd_moves();
}

}  // namespace mge
