#include "kernel/cuda/api.h"

#include "kernel/cuda/machine.h"
#include "kernel/late_error.h"

namespace mge::cuda {

const Arch& arch(int device) { return Machine::get().device(device).arch; }
CUcontext context_of(int device) { return Machine::get().device(device).context; }
CUstream stream_of(const Work& work) { return static_cast<const CudaWork&>(work).raw; }

void launch(const Work& work, CUfunction f, Dim grid, Dim block, unsigned shared, void** arguments) {
  if (!grid.x || !grid.y || !grid.z) return;
  auto& s = static_cast<CudaStream&>(work.stream);
  const CUresult r = driver().cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                                             stream_of(work), arguments, nullptr);
  if (__builtin_expect(r == CUDA_SUCCESS, 1)) return;
  if (is_fatal(r)) Machine::get().check(s.state, r, "cuLaunchKernel");
  fail(r == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::Memory : ErrorKind::Env,
       "gpu{}: a launch of {}x{}x{} blocks of {}x{}x{} threads with {} bytes of shared memory was refused: {}.",
       s.device.index, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, error_text(r));
}

int64_t* error_words(Work& work, std::function<void(const int64_t*)> raise) {
  if (auto rethrow = late_rethrow())
    raise = [raise = std::move(raise), rethrow = std::move(rethrow)](const int64_t* words) {
      try {
        raise(words);
      } catch (...) {
        rethrow();
        throw;
      }
    };
  return static_cast<CudaWork&>(work).words(std::move(raise));
}

RefPtr<Storage> scratch(const KernelArgs& a, size_t bytes) { return static_cast<CudaWork&>(*a.work).scratch(bytes); }

void keep(Work& work, std::shared_ptr<const void> what) { static_cast<CudaWork&>(work).keep(std::move(what)); }

Bind::Bind(CUcontext c) {
  check(driver().cuCtxGetCurrent(&before_), "cuCtxGetCurrent");
  if (before_ == c) return;
  check(driver().cuCtxSetCurrent(c), "cuCtxSetCurrent");
  changed_ = true;
}
Bind::~Bind() {
  if (changed_) driver().cuCtxSetCurrent(before_);
}

}  // namespace mge::cuda
