// Pooling: a thread for each element of the result.
#include "op/pool/pool.h"

#include "kernel/cuda/written.h"

namespace mge::cuda {
namespace {

// Operands by number; -1: the kernel reads none.
struct Roles {
  const char* kernel;
  int x, g, v;
};
constexpr Roles kMax{"mge_max_pool", 0, -1, -1}, kMaxBwd{"mge_max_pool_bwd", 0, 2, -1},
    kMaxTake{"mge_max_pool_take", 0, -1, 2}, kAvg{"mge_avg_pool", 0, -1, -1}, kAvgBwd{"mge_avg_pool_bwd", -1, 0, -1};

template <class A, const Roles& roles>
void run(const KernelArgs& a) {
  const int64_t total = a.out[0].numel();
  if (total == 0) return;
  const A& at = a.as<A>();
  const PoolGeom g = pool_geom(at, roles.x < 0 ? a.out[0].shape : a.in[0].shape);
  bool include_pad = false;
  if constexpr (requires { at.include_pad; }) include_pad = at.include_pad;
  auto in = [&](int k) { return k < 0 ? 0 : address(a.in[static_cast<size_t>(k)].ptr); };
  engine().launch(a, written(roles.kernel, "pool", {{"T", a.out[0].dtype}}), cover(total),
                  {total, address(a.out[0].ptr), in(roles.x), in(roles.g), in(roles.v), g.h, g.w, g.oh, g.ow, g.kh,
                   g.kw, g.sh, g.sw, g.ph, g.pw, include_pad});
}
const char* refuse(const KernelArgs& a) { return is_float(a.out[0].dtype) ? nullptr : "needs floating point"; }

}  // namespace

void register_cuda_pool(KernelRegistry& r) {
  auto pool = [&](const char* op, void (*run)(const KernelArgs&)) {
    add(r, op, {.name = "nvrtc_pool", .refuse = refuse, .run = run});
  };
  pool("max_pool2d", run<PoolAttrs, kMax>);
  pool("max_pool2d_bwd", run<PoolAttrs, kMaxBwd>);
  pool("max_pool2d_take", run<PoolAttrs, kMaxTake>);
  pool("avg_pool2d", run<AvgPoolAttrs, kAvg>);
  pool("avg_pool2d_bwd", run<AvgPoolBwdAttrs, kAvgBwd>);
}

}  // namespace mge::cuda
