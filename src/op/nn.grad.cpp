#include "op/nn.h"

namespace mge {

void register_nn_grads(OpRegistry& r) {
  register_matmul_grad(r);
  register_conv2d_grad(r);
  register_pool_grad(r);
  register_batch_norm_grad(r);
  register_layer_norm_grad(r);
  register_softmax_grad(r);
  register_loss_grad(r);
  register_indexing_grad(r);
  register_rng_grad(r);
  register_sort_grad(r);
  register_multi_index_grad(r);
  register_linalg_grad(r);
  register_conv3d_grad(r);
  register_vision_grad(r);
  register_ctc_grad(r);
  register_complex_grad(r);
  register_recurrence_grad(r);
}

}  // namespace mge
