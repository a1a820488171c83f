#include "kernel/cuda/emulate.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/hash.h"
#include "kernel/cuda/api.h"
#include "kernel/cuda/engine.h"
#include "kernel/decompose.h"

namespace mge::cuda {
namespace {

namespace fs = std::filesystem;
using Run = void (*)(const void* args, unsigned blocks, unsigned threads);

class Emulator final : public Engine {
 public:
  explicit Emulator(std::string compiler) : compiler_(std::move(compiler)) {
    folder_ = fs::temp_directory_path() / format("mge-emulated-{}", getuid());
    uint64_t all = 0;
    for (auto& h : headers()) all = hash_bytes(h.text, all);
    folder_ /= format("{:016x}", all);
    for (auto& h : headers()) {
      if (!std::string_view(h.name).ends_with("h")) continue;  // those of the standard library are there
      fs::create_directories((folder_ / h.name).parent_path());
      std::ofstream(folder_ / h.name) << h.text;
    }
  }

  void launch(const KernelArgs&, const Code& code, Grid grid, std::span<const Word> args) override {
    void* fn = code.loaded.load(std::memory_order_acquire);
    if (!fn) {
      std::lock_guard<std::mutex> lock(mutex_);
      code.loaded.store(fn = build(code), std::memory_order_release);
    }
    reinterpret_cast<Run>(fn)(args.data(), grid.blocks, grid.threads);
    if (!errors_[0]) return;
    errors_[0] = 0;
    raise_(errors_);
  }
  RefPtr<Storage> scratch(const KernelArgs&, size_t bytes) override { return allocate_storage({}, bytes); }
  Word* error_words(const KernelArgs&, Raise raise) override {
    raise_ = std::move(raise);
    return errors_;
  }

 private:
  void* build(const Code& code) {
    const std::string base = (folder_ / format("{}_{:016x}", code.name, hash_bytes(code.text))).string();
    if (!fs::exists(base + ".so")) {
      std::ofstream(base + ".cpp")
          << "#include \"kernel/cuda/device/host.h\"\n"
          << code.text
          << format(
                 "extern \"C\" void mge_emulated(const Args* a, unsigned blocks, unsigned threads) {{\n"
                 "  run_grid(blocks, threads, [&] {{ {}(*a); }});\n}}\n",
                 code.name);
      bool meets = false;
      for (const char* header : {"device/reduce.cuh", "device/rows.cuh", "device/batch_norm.cuh"})
        meets |= code.text.find(header) != std::string::npos;
      const std::string command = format(
          "{0} -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fno-math-errno {1} -I{2} {3}.cpp -o {3}.{4}.so 2>&1",
          compiler_, meets ? "-DMGE_FIBERS=1" : "", folder_.string(), base, getpid());
      FILE* p = popen(command.c_str(), "r");
      std::string told;
      char line[512];
      while (p && fgets(line, sizeof line, p)) told += line;
      MGE_CHECK(p && pclose(p) == 0, Internal, "emulator: {} does not compile: {}\n{}", code.name, command, told);
      fs::rename(format("{}.{}.so", base, getpid()), base + ".so");
    }
    void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    MGE_CHECK(library, Internal, "emulator: {}", dlerror());
    return dlsym(library, "mge_emulated");
  }

  std::string compiler_;
  fs::path folder_;
  std::mutex mutex_;
  static thread_local Word errors_[4];
  static thread_local Raise raise_;
};
thread_local Word Emulator::errors_[4];
thread_local Raise Emulator::raise_;

}  // namespace

void emulate_cuda(const std::string& compiler) {
  register_cuda_kernels(KernelRegistry::global());
  set_engine(compiler.empty() ? nullptr : new Emulator(compiler));
  set_fake_kernels(compiler.empty() ? DeviceKind::Cpu : DeviceKind::Cuda);
}

}  // namespace mge::cuda
