// The list of all vjp rules; left out of Lite with every other *.grad.cpp.
#include "op/all_ops.h"
#include "op/opdef.h"

namespace mge {

void register_all_grads(OpRegistry& r) {
  register_elementwise_grads(r);
  register_reduce_grads(r);
  register_shape_grads(r);
  register_copy_to_grads(r);
  register_nn_grads(r);
  register_scan_grads(r);
}

}  // namespace mge
