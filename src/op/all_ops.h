// One registration function per file of ops.
#pragma once

namespace mge {

class OpRegistry;
void register_elementwise(OpRegistry& r);
void register_reduce(OpRegistry& r);
void register_shape_ops(OpRegistry& r);
void register_copy_to(OpRegistry& r);
void register_nn(OpRegistry& r);
void register_scan(OpRegistry& r);
void register_quantize(OpRegistry& r);
void register_fused(OpRegistry& r);

void register_elementwise_grads(OpRegistry& r);
void register_reduce_grads(OpRegistry& r);
void register_shape_grads(OpRegistry& r);
void register_copy_to_grads(OpRegistry& r);
void register_nn_grads(OpRegistry& r);
void register_scan_grads(OpRegistry& r);

}  // namespace mge
