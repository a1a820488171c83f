// The shared libraries of NVIDIA, found and loaded when they are first needed: nothing here links against them, so the
// same build runs on machines without a GPU.
//   nvrtc().symbol("nvrtcVersion")       // an Env error says where it was looked for
#pragma once
#include <mutex>
#include <string>
#include <vector>

namespace mge::cuda {

/// One shared library. `stem` is its name without version: "libnvrtc". It is looked for as the environment variable
/// says (a path), then by the names of its versions where the system looks, then in the folders of NVIDIA's wheels.
class Library {
 public:
  Library(const char* stem, const char* variable, std::vector<std::string> versions)
      : stem_(stem), variable_(variable), versions_(std::move(versions)) {}
  /// Loads it; false with the reason in missing().
  bool load();
  /// An Env error when the library or the function is not there.
  void* symbol(const char* name);
  /// Null when it is not there.
  void* find(const char* name);
  const char* stem() const { return stem_; }
  std::string path();     // empty: not loaded
  std::string missing();  // why it is not there; empty: it is

 private:
  const char *stem_, *variable_;
  std::vector<std::string> versions_;  // newest first: "13", "12"
  std::mutex mutex_;
  void* handle_ = nullptr;
  bool tried_ = false;
  std::string path_, missing_;
};

Library& driver_library();
Library& nvrtc();
Library& cublaslt();
Library& cudnn();
std::vector<Library*> all_libraries();

/// Folders of installed Python packages (sys.path), in which wheels are looked for: nvidia/*/lib and torch/lib.
void set_package_folders(std::vector<std::string> folders);

}  // namespace mge::cuda
