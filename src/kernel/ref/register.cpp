#include "kernel/kernel.h"
#include "kernel/ref/ref.h"

namespace mge {

void register_ref_kernels(KernelRegistry& r) {
  register_ref_elementwise(r);
  register_ref_reduce(r);
  register_ref_shape(r);
  register_ref_nn(r);
}

}  // namespace mge
