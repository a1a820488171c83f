#include "kernel/simd/register.h"

#include "kernel/simd/targets.h"

#include <hwy/highway.h>

namespace mge {

void register_simd_kernels(KernelRegistry& r) {
#ifdef MGE_SOME_ISAS
  if (!(hwy::SupportedTargets() & HWY_TARGETS))
    fail(ErrorKind::NotImplemented,
         "lite: this runtime was built for CPUs with {} (MGE_ISAS); this one has none of them. Use a build for this "
         "CPU.",
         MGE_SOME_ISAS);
#endif
  register_simd_families(r);
  simd_nn::register_through_float(r);  // asked after the kernels of each op itself
  install_simd_moves();
}

}  // namespace mge
