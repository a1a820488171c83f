#include "kernel/onednn/leaf.h"

#include <cstdio>
#include <cstdlib>

#include "kernel/onednn/openmp.h"

namespace mge {
namespace onednn {

dnnl::engine& engine() {
  static auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // leaked: primitives may outlive static destruction
  return *e;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream s(engine());
  return s;
}

void execute(const dnnl::primitive& p, int parts, std::initializer_list<std::pair<int, const dnnl::memory*>> args) {
  dnnl_exec_arg_t list[8];
  int n = 0;
  for (auto& [arg, mem] : args) list[n++] = {arg, mem->get()};
  const Entered entered(parts);
  dnnl_status_t status = dnnl_primitive_execute(p.get(), stream().get(), n, list);
  if (status == dnnl_out_of_memory) fail(ErrorKind::Memory, "oneDNN: out of memory.");
  if (status != dnnl_success)
    MGE_FAIL_ENV("oneDNN: executing a primitive failed with status {}.", static_cast<int>(status));
}

Room::Room(size_t bytes) : data_(static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64))) {
  if (!data_) fail(ErrorKind::Memory, "oneDNN: out of memory.");
}
Room::~Room() { std::free(data_); }

void fill_random(void* data, int64_t n, bool bfloat16) {
  uint32_t state = 12345;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const float v = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    if (bfloat16)
      static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
    else
      static_cast<float*>(data)[i] = v;
  }
}

bool has_bfloat16() {
  using dnnl::cpu_isa;
  static const bool has = [] {
    auto bits = [](cpu_isa isa) { return static_cast<unsigned>(isa); };
    return (bits(dnnl::get_effective_cpu_isa()) & bits(cpu_isa::avx512_core_bf16)) == bits(cpu_isa::avx512_core_bf16);
  }();
  return has;
}

}  // namespace onednn

const char* onednn_unused() { return onednn::bind_openmp(); }

void register_onednn_kernels(KernelRegistry& r) {
  if (const char* why = onednn_unused()) {
    std::fprintf(stderr, "megengine: oneDNN is not used: %s.\n", why);
    return;
  }
  onednn::register_matmul(r);
  onednn::register_conv2d(r);
  onednn::register_qproduct(r);
}

}  // namespace mge
