#include "kernel/cuda/emulate.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/write_file.h"
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
    // Of this process alone: what is loaded from there must be nobody else's.
    std::string made = (fs::temp_directory_path() / "mge-emulated-XXXXXX").string();
    MGE_CHECK(mkdtemp(made.data()), Env, "emulator: cannot make a folder {}: {}.", made, strerror(errno));
    folder_ = made;
    for (auto& h : headers()) {
      if (!std::string_view(h.name).ends_with("h")) continue;  // those of the standard library are there
      fs::create_directories((folder_ / h.name).parent_path());
      put(folder_ / h.name, h.text);
    }
  }
  ~Emulator() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
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
  static void put(const fs::path& path, std::string_view text) {
    FileWriter f(path.string());
    f.write(text);
    f.commit();
  }
  void* build(const Code& code) {
    const std::string base = (folder_ / format("{}_{}", code.name, ++built_)).string();
    put(base + ".cpp", "#include \"kernel/cuda/device/host.h\"\n" + code.text +
                           format("extern \"C\" __attribute__((visibility(\"default\"))) void mge_emulated(const Args* "
                                  "a, unsigned blocks, unsigned threads) {{\n"
                                  "  run_grid(blocks, threads, [&] {{ {}(*a); }});\n}}\n",
                                  code.name));
    bool meets = false;
    for (const char* header : {"device/reduce.cuh", "device/rows.cuh", "device/batch_norm.cuh", "device/optim.cuh",
                               "device/xent.cuh", "define MGE_CHAINS"})
      meets |= code.text.find(header) != std::string::npos;
    // Hidden: shared memory is static memory of templates, which the loader would make one of all libraries.
    const std::string command = format(
        "{0} -std=c++20 -O1 -w -fPIC -shared -fvisibility=hidden -ffp-contract=off -fno-math-errno {1} -I{2} {3}.cpp "
        "-o {3}.so 2>&1",
        compiler_, meets ? "-DMGE_FIBERS=1" : "", folder_.string(), base);
    FILE* p = popen(command.c_str(), "r");
    std::string told;
    char line[512];
    while (p && fgets(line, sizeof line, p)) told += line;
    MGE_CHECK(p && pclose(p) == 0, Internal, "emulator: {} does not compile: {}\n{}", code.name, command, told);
    void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    MGE_CHECK(library, Internal, "emulator: {}", dlerror());
    return dlsym(library, "mge_emulated");
  }

  std::string compiler_;
  fs::path folder_;
  int built_ = 0;
  std::mutex mutex_;
  static thread_local Word errors_[4];
  static thread_local Raise raise_;
};
thread_local Word Emulator::errors_[4];
thread_local Raise Emulator::raise_;

}  // namespace

void emulate_cuda(const std::string& compiler) {
  register_cuda_kernels(KernelRegistry::global());
  static std::unique_ptr<Emulator> one;  // for good: what it has loaded is in use
  if (!compiler.empty() && !one) one = std::make_unique<Emulator>(compiler);
  set_engine(compiler.empty() ? nullptr : one.get());
  set_fake_kernels(compiler.empty() ? DeviceKind::Cpu : DeviceKind::Cuda);
}

}  // namespace mge::cuda
