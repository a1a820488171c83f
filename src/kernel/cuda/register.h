// The families of the GPU's kernels; register_cuda_kernels (kernel/cuda/api.h) calls each.
#pragma once

namespace mge {
class KernelRegistry;
}
namespace mge::cuda {

void register_cuda_elementwise(KernelRegistry& r);
void register_cuda_reduce(KernelRegistry& r);
void register_cuda_shape(KernelRegistry& r);
void register_cuda_matmul(KernelRegistry& r);
void register_cuda_cublaslt(KernelRegistry& r);
void register_cuda_conv(KernelRegistry& r);
void register_cuda_cudnn(KernelRegistry& r);
void register_cuda_pool(KernelRegistry& r);
void register_cuda_index(KernelRegistry& r);
void register_cuda_rng(KernelRegistry& r);
void register_cuda_rows(KernelRegistry& r);
void register_cuda_batch_norm(KernelRegistry& r);
void register_cuda_xent(KernelRegistry& r);
void register_cuda_sort(KernelRegistry& r);
void register_cuda_optim(KernelRegistry& r);

}  // namespace mge::cuda
