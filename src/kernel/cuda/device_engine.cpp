// The engine of the GPU: NVRTC compiles, the driver runs. A library of the driver serves all devices of one
// architecture, which those of a machine nearly always share.
#include <mutex>
#include <unordered_map>

#include "kernel/cuda/api.h"
#include "kernel/cuda/engine.h"
#include "kernel/cuda/nvrtc.h"

namespace mge::cuda {
namespace {

class GpuEngine final : public Engine {
 public:
  bool is_gpu() const override { return true; }
  void launch(const KernelArgs& a, const Code& code, Grid grid, std::span<const Word> args) override {
    void* f = code.loaded.load(std::memory_order_acquire);
    if (__builtin_expect(!f, 0)) f = load(code, arch(device_of(a)).number());
    void* parameters[] = {const_cast<Word*>(args.data())};
    cuda::launch(a, static_cast<CUfunction>(f), {grid.blocks}, {grid.threads}, 0, parameters);
  }
  RefPtr<Storage> scratch(const KernelArgs& a, size_t bytes) override { return cuda::scratch(a, bytes); }
  Word* error_words(const KernelArgs& a, Raise raise) override { return cuda::error_words(a, std::move(raise)); }

 private:
  void* load(const Code& code, int arch) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (void* f = code.loaded.load()) return f;
    CUlibrary& library = libraries_[code.text];
    CUkernel kernel = nullptr;
    if (!library) {
      const std::string image = compile(code.unit, code.text, arch);
      check(driver().cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            "cuLibraryLoadData");
    }
    check(driver().cuLibraryGetKernel(&kernel, library, code.name.c_str()), "cuLibraryGetKernel");
    code.loaded.store(kernel, std::memory_order_release);
    return kernel;
  }
  std::mutex mutex_;
  std::unordered_map<std::string, CUlibrary> libraries_;  // by text
};

}  // namespace

Engine& gpu_engine() {
  static Engine* e = new GpuEngine;
  return *e;
}

}  // namespace mge::cuda
