#include "kernel/cuda/register.h"

#include <mutex>

#include "kernel/copy.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/written.h"

namespace mge {
namespace {

void copy_by_work(const TensorArg& src, const TensorArg& dst, Work& work) {
  static const OpDef& op = OpRegistry::global().get("copy");
  KernelArgs a{&op, nullptr, {&src, 1}, {&dst, 1}, nullptr, DeviceKind::Cuda, &work};
  cuda::copy_on_device(a, src, dst);
}

}  // namespace

void register_cuda_kernels(KernelRegistry& r) {
  static std::once_flag once;
  std::call_once(once, [&] {
    using namespace cuda;
    for (auto* family : {register_cuda_elementwise, register_cuda_reduce, register_cuda_shape, register_cuda_matmul,
                         register_cuda_cublaslt, register_cuda_conv, register_cuda_cudnn, register_cuda_pool,
                         register_cuda_index, register_cuda_rng, register_cuda_rows, register_cuda_batch_norm,
                         register_cuda_xent, register_cuda_sort, register_cuda_optim})
      family(r);
    set_strided_copy(DeviceKind::Cuda, copy_by_work);
  });
}

}  // namespace mge
