#include "kernel/cuda/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace mge::cuda {
namespace {

struct Folders {
  std::mutex mutex;
  std::vector<std::string> packages;
};
Folders& folders() {
  static auto* f = new Folders;
  return *f;
}

// Where the wheels of NVIDIA, and PyTorch's, keep libraries.
std::vector<std::filesystem::path> wheel_folders() {
  std::vector<std::string> packages;
  {
    std::lock_guard<std::mutex> lock(folders().mutex);
    packages = folders().packages;
  }
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::path p : packages) {
    std::error_code none;
    std::vector<std::filesystem::path> own;
    for (auto& entry : std::filesystem::directory_iterator(p / "nvidia", none)) own.push_back(entry.path() / "lib");
    std::sort(own.begin(), own.end(), std::greater<>());  // cu13 holds newer ones than cuda_nvrtc
    own.push_back(p / "torch" / "lib");
    for (auto& folder : own)
      if (std::filesystem::is_directory(folder, none)) found.push_back(folder);
  }
  found.emplace_back("/usr/local/cuda/lib64");
  return found;
}

}  // namespace

void set_package_folders(std::vector<std::string> packages) {
  std::lock_guard<std::mutex> lock(folders().mutex);
  folders().packages = std::move(packages);
}

bool Library::load() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(tried_, true)) return handle_;
  std::string looked;
  auto open = [&](const std::string& name) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) return false;
    Dl_info info;
    const char* any = nullptr;
    for (const char* probe : {"cuInit", "nvrtcVersion", "cublasLtGetVersion", "cudnnGetVersion"})
      if (void* at = dlsym(handle_, probe); at && dladdr(at, &info)) any = info.dli_fname;
    path_ = any ? any : name;
    return true;
  };
  if (const char* asked = std::getenv(variable_); asked && *asked) {
    if (open(asked)) return true;
    missing_ = format("{}={}: {}", variable_, asked, dlerror());
    return false;
  }
  for (auto& v : versions_)
    if (open(format("{}.so.{}", stem_, v))) return true;
  const char* why = dlerror();
  std::string problem = why ? why : "";
  for (auto& folder : wheel_folders())
    for (auto& v : versions_) {
      const auto file = folder / format("{}.so.{}", stem_, v);
      std::error_code none;
      if (!std::filesystem::exists(file, none)) continue;
      if (open(file.string())) return true;
      why = dlerror();
      problem = why ? why : "";
    }
  missing_ =
      format("{}.so.{} is neither where the system looks nor in a wheel of NVIDIA ({})", stem_, versions_[0], problem);
  return false;
}

void* Library::find(const char* name) { return load() ? dlsym(handle_, name) : nullptr; }

void* Library::symbol(const char* name) {
  MGE_CHECK(load(), Env,
            "CUDA: {}. Install the driver and the wheels nvidia-cuda-nvrtc, nvidia-cublas and "
            "nvidia-cudnn-cu13; `python -m megengine doctor` says what is there.",
            missing());
  void* at = find(name);
  MGE_CHECK(at, Env, "CUDA: {} has no function {}; a newer version is needed.", path(), name);
  return at;
}

std::string Library::path() {
  std::lock_guard<std::mutex> lock(mutex_);
  return path_;
}
std::string Library::missing() {
  std::lock_guard<std::mutex> lock(mutex_);
  return missing_;
}

Library& driver_library() {
  static auto* l = new Library("libcuda", "MGE_CUDA_DRIVER", {"1"});
  return *l;
}
Library& nvrtc() {
  static auto* l = new Library("libnvrtc", "MGE_CUDA_NVRTC", {"13", "12"});
  return *l;
}
Library& cublaslt() {
  static auto* l = new Library("libcublasLt", "MGE_CUDA_CUBLASLT", {"13", "12"});
  return *l;
}
Library& cudnn() {
  static auto* l = new Library("libcudnn", "MGE_CUDA_CUDNN", {"9"});
  return *l;
}
std::vector<Library*> all_libraries() { return {&driver_library(), &nvrtc(), &cublaslt(), &cudnn()}; }

}  // namespace mge::cuda
