#include "kernel/onednn/leaf.h"

#include <omp.h>

#include "base/parallel.h"

namespace mge {
namespace {

void run_on_team(int n, FunctionRef<void(int)> task) {
#pragma omp parallel for num_threads(n) schedule(static, 1)
  for (int i = 0; i < n; ++i) task(i);
}
void set_team(int n) { omp_set_num_threads(n); }
// libgomp keeps a team for each thread that leads one, and starts another when it is needed again. The worker's team is
// left alone: its leader is not in the child either.
void end_team() { omp_pause_resource_all(omp_pause_soft); }

}  // namespace

namespace onednn {

dnnl::engine& engine() {
  static auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // leaked: primitives may outlive static destruction
  return *e;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream s(engine());
  if (omp_get_max_threads() != num_threads()) omp_set_num_threads(num_threads());  // an OpenMP setting is per thread
  return s;
}

void execute(const dnnl::primitive& p, std::initializer_list<std::pair<int, const dnnl::memory*>> args) {
  dnnl_exec_arg_t list[8];
  int n = 0;
  for (auto& [arg, mem] : args) list[n++] = {arg, mem->get()};
  dnnl_status_t status = dnnl_primitive_execute(p.get(), stream().get(), n, list);
  if (status == dnnl_out_of_memory) fail(ErrorKind::Memory, "oneDNN: out of memory.");
  if (status != dnnl_success)
    MGE_FAIL_ENV("oneDNN: executing a primitive failed with status {}.", static_cast<int>(status));
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

void register_onednn_kernels(KernelRegistry& r) {
  static const ParallelBackend team{run_on_team, set_team, end_team};
  set_parallel_backend(&team);
  onednn::register_matmul(r);
  onednn::register_conv2d(r);
}

}  // namespace mge
