// The list of all ops. Explicit, so that a static Lite build keeps what it names and nothing depends on link order.
#include "op/all_ops.h"

#include "op/opdef.h"

namespace mge {

void register_all(OpRegistry& r) {
  register_elementwise(r);
  register_reduce(r);
  register_shape_ops(r);
  register_copy_to(r);
  register_nn(r);
  register_scan(r);
  register_quantize(r);
  register_fused(r);
}

}  // namespace mge
