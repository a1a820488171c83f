// Text of kernels to machine code, by NVRTC, which needs no GPU. What it has compiled is kept on disk, by content:
// text, headers, options, version and architecture; another process compiles nothing.
//   std::string image = compile({"mge_add", text}, 90);
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace mge::cuda {

/// The code of kernel `name` in `text` for compute capability `arch` (80: sm_80). An Internal error with the compiler's
/// words when the text is wrong, an Env error when NVRTC is not there.
std::string compile(const std::string& name, const std::string& text, int arch);
/// How often compile has asked the compiler in this process.
int compiled_count();
/// Where images are kept: $MGE_CUDA_CACHE_DIR, else cuda/ in the folder of megengine's caches; empty: nowhere.
std::string image_folder();

}  // namespace mge::cuda
