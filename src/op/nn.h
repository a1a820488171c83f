// The neural-network ops: who registers them, and the argument checks they share.
//   nn::check_rank(c, 0, 4, 4);   "max_pool2d: x must have 4 dimensions; got float32[3,3]."
#pragma once
#include "op/opdef.h"

namespace mge {

void register_nn(OpRegistry& r);
void register_nn_grads(OpRegistry& r);

void register_matmul(OpRegistry& r);
void register_conv2d(OpRegistry& r);
void register_pool(OpRegistry& r);
void register_batch_norm(OpRegistry& r);
void register_layer_norm(OpRegistry& r);
void register_softmax(OpRegistry& r);
void register_loss(OpRegistry& r);
void register_indexing(OpRegistry& r);
void register_optim(OpRegistry& r);
void register_rng(OpRegistry& r);
void register_sort(OpRegistry& r);
void register_multi_index(OpRegistry& r);
void register_linalg(OpRegistry& r);
void register_conv3d(OpRegistry& r);
void register_vision(OpRegistry& r);
void register_ctc(OpRegistry& r);
void register_complex(OpRegistry& r);
void register_recurrence(OpRegistry& r);

void register_matmul_grad(OpRegistry& r);
void register_conv2d_grad(OpRegistry& r);
void register_pool_grad(OpRegistry& r);
void register_batch_norm_grad(OpRegistry& r);
void register_layer_norm_grad(OpRegistry& r);
void register_softmax_grad(OpRegistry& r);
void register_loss_grad(OpRegistry& r);
void register_indexing_grad(OpRegistry& r);
void register_rng_grad(OpRegistry& r);
void register_sort_grad(OpRegistry& r);
void register_multi_index_grad(OpRegistry& r);
void register_linalg_grad(OpRegistry& r);
void register_conv3d_grad(OpRegistry& r);
void register_vision_grad(OpRegistry& r);
void register_ctc_grad(OpRegistry& r);
void register_complex_grad(OpRegistry& r);
void register_recurrence_grad(OpRegistry& r);

namespace nn {

struct Pair {
  int64_t h, w;
};

void check_float(const InferCtx& c, size_t i);
void check_dtype(const InferCtx& c, size_t i, DType want);
void check_rank(const InferCtx& c, size_t i, int lo, int hi);
/// `why` ends the sentence: "... must have shape [1,8,1,1] {why}; got ...".
void check_shape_is(const InferCtx& c, size_t i, const Shape& want, std::string_view why);
/// Two ints from [h,w] or [both]; each at least `least`.
Pair pair_of(const InferCtx& c, const char* attr, const Ints& v, int64_t least);
Pair pair_of(const Ints& v);  // already checked
/// "x", or "inputs[3]" for a repeated one.
std::string input_name(const InferCtx& c, size_t i);

}  // namespace nn
}  // namespace mge
