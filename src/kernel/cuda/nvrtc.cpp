#include "kernel/cuda/nvrtc.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/hash.h"
#include "base/write_file.h"
#include "kernel/cuda/engine.h"
#include "kernel/cuda/library.h"

namespace mge::cuda {
namespace {

using Program = struct _nvrtcProgram*;
// The functions of NVRTC that are used here, by the names of nvrtc.h.
#define MGE_NVRTC(F)                                                                                       \
  F(nvrtcVersion, (int*, int*))                                                                            \
  F(nvrtcCreateProgram, (Program*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(nvrtcCompileProgram, (Program, int, const char* const*))                                               \
  F(nvrtcGetCUBINSize, (Program, size_t*))                                                                 \
  F(nvrtcGetCUBIN, (Program, char*))                                                                       \
  F(nvrtcGetProgramLogSize, (Program, size_t*))                                                            \
  F(nvrtcGetProgramLog, (Program, char*))                                                                  \
  F(nvrtcDestroyProgram, (Program*))
struct Nvrtc {
#define MGE_FIELD(name, arguments) int(*name) arguments;
  MGE_NVRTC(MGE_FIELD)
#undef MGE_FIELD
  int major = 0, minor = 0;
  Nvrtc() {
#define MGE_LOAD(name, arguments) name = reinterpret_cast<int(*) arguments>(nvrtc().symbol(#name));
    MGE_NVRTC(MGE_LOAD)
#undef MGE_LOAD
    nvrtcVersion(&major, &minor);
  }
};
const Nvrtc& api() {
  static const Nvrtc* n = new Nvrtc;
  return *n;
}

// Products and sums are rounded one by one, division and roots to the nearest, and small numbers stay: the bits of the
// CPU's kernels. Bodies say fma where they want it.
constexpr const char* kOptions[] = {"-std=c++20",     "-default-device", "-fmad=false",
                                    "-prec-div=true", "-prec-sqrt=true", "-ftz=false"};

std::atomic<int> g_compiled{0};

std::string run_compiler(const std::string& name, const std::string& text, const std::string& arch) {
  const Nvrtc& n = api();
  std::vector<const char*> texts, names, options(std::begin(kOptions), std::end(kOptions));
  for (auto& h : headers()) texts.push_back(h.text), names.push_back(h.name);
  options.push_back(arch.c_str());
  Program p = nullptr;
  const int made = n.nvrtcCreateProgram(&p, text.c_str(), (name + ".cu").c_str(), static_cast<int>(texts.size()),
                                        texts.data(), names.data());
  MGE_CHECK(made == 0, Internal, "nvrtc: {} could not be begun (error {}).", name, made);
  struct Guard {
    const Nvrtc& n;
    Program& p;
    ~Guard() { n.nvrtcDestroyProgram(&p); }
  } guard{n, p};
  g_compiled.fetch_add(1);
  if (n.nvrtcCompileProgram(p, static_cast<int>(options.size()), options.data()) != 0) {
    size_t size = 0;
    n.nvrtcGetProgramLogSize(p, &size);
    std::string log(size, ' ');
    n.nvrtcGetProgramLog(p, log.data());
    fail(ErrorKind::Internal, "nvrtc: {} does not compile for {}:\n{}\n{}", name, arch, log, text);
  }
  size_t size = 0;
  n.nvrtcGetCUBINSize(p, &size);
  std::string image(size, '\0');
  n.nvrtcGetCUBIN(p, image.data());
  return image;
}

// A file holds all that the image was made from, which is compared, then the image and its checksum.
struct Kept {
  std::string path, head;
  Kept(const std::string& name, const std::string& text, const std::string& arch) {
    const std::string folder = image_folder();
    if (folder.empty()) return;
    const Nvrtc& n = api();
    head = format("megengine image 1\nnvrtc {}.{} {}", n.major, n.minor, arch);
    for (const char* o : kOptions) head += format(" {}", o);
    uint64_t included = 0;
    for (auto& h : headers()) included = hash_bytes(h.text, hash_bytes(h.name, included));
    head += format("\nheaders {:016x}\n{}\n", included, text);
    path = format("{}/{}_{:016x}{:016x}", folder, name, hash_bytes(head), hash_bytes(head, 1));
  }
  std::string read() const {
    if (path.empty()) return {};
    std::ifstream file(path, std::ios::binary);
    if (!file) return {};
    std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (all.size() < head.size() + 16 || all.compare(0, head.size(), head) != 0) return {};
    std::string image = all.substr(head.size(), all.size() - head.size() - 16);
    return all.compare(all.size() - 16, 16, format("{:016x}", hash_bytes(image))) == 0 ? image : std::string();
  }
  void write(const std::string& image) const {
    if (path.empty()) return;
    try {
      std::filesystem::create_directories(image_folder());
      const std::string rest = image + format("{:016x}", hash_bytes(image));
      replace_file(path, head, rest.data(), rest.size());
    } catch (const std::exception&) {
      // A folder that cannot be written costs time only.
    }
  }
};

std::string env(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

}  // namespace

std::string image_folder() {
  if (!env("MGE_CUDA_CACHE_DIR").empty()) return env("MGE_CUDA_CACHE_DIR");
  if (!env("XDG_CACHE_HOME").empty()) return env("XDG_CACHE_HOME") + "/megengine/cuda";
  return env("HOME").empty() ? "" : env("HOME") + "/.cache/megengine/cuda";
}

int compiled_count() { return g_compiled.load(); }

std::string compile(const std::string& name, const std::string& text, int arch) {
  const std::string option = format("-arch=sm_{}", arch);
  const Kept kept(name, text, option);
  std::string image = kept.read();
  if (image.empty()) {
    image = run_compiler(name, text, option);
    kept.write(image);
  }
  return image;
}

}  // namespace mge::cuda
