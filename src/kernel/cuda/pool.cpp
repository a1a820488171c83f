// Pooling: a thread for some elements of the result, in whichever order the images lie.
#include "op/pool/pool.h"

#include <array>

#include "kernel/cuda/rows.h"
#include "kernel/cuda/written.h"
#include "kernel/layouts.h"

namespace mge::cuda {
namespace {

// Operands by number; -1: the kernel reads none.
struct Roles {
  const char* kernel;
  int x, g, v;
};
constexpr Roles kMax{"mge_max_pool", 0, -1, -1}, kMaxBwd{"mge_max_pool_bwd", 0, 2, -1},
    kMaxTake{"mge_max_pool_take", 0, -1, 2}, kAvg{"mge_avg_pool", 0, -1, -1}, kAvgBwd{"mge_avg_pool_bwd", -1, 0, -1};

// By log2 of the pack, whether places have 64 bits, and whether places in a window have more than 16.
const char* define_of(int log, bool large, bool far) {
  static const auto* all = [] {
    auto* texts = new std::array<std::string, 16>;
    for (int i = 0; i < 16; ++i)
      (*texts)[static_cast<size_t>(i)] = format("constexpr int V = {};\ntypedef {} Index;\ntypedef {} Where;",
                                                1 << (i & 3), i & 4 ? "i64" : "unsigned", i & 8 ? "int" : "uint16_t");
    return texts;
  }();
  return (*all)[static_cast<size_t>(log | large << 2 | far << 3)].c_str();
}

template <class A, const Roles& roles>
void run(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const A& at = a.as<A>();
  const Shape& image = roles.x < 0 ? a.out[0].shape : a.in[0].shape;
  const PoolGeom g = pool_geom(at, image);
  bool include_pad = false;
  if constexpr (requires { at.include_pad; }) include_pad = at.include_pad;
  auto in = [&](int k) { return k < 0 ? 0 : address(a.in[static_cast<size_t>(k)].ptr); };
  const DType t = a.out[0].dtype;
  const bool last = in_channels_last(a.out[0]) || in_channels_last(a.in[0]);
  const int64_t inner = last ? g.c : 1;
  const Word places = address(a.out[0].ptr) | in(roles.x) | in(roles.g) | in(roles.v);
  const int log = log_of_pack(t, inner, places);
  const bool far = g.kh * g.kw > 65535;
  const char* define = define_of(log, std::max(image.numel(), a.out[0].numel()) >= int64_t{1} << 31, far);
  auto launch = [&](const char* kernel, int64_t elements, Word to, Word where) {
    const int64_t total = elements >> log;
    engine().launch(a, written(kernel, "pool", {{"T", t}}, define), cover(total),
                    {total, to, in(roles.x), in(roles.g), in(roles.v), where, inner, g.h, g.w, g.oh, g.ow, g.kh, g.kw,
                     g.sh, g.sw, g.ph, g.pw, include_pad});
  };
  RefPtr<Storage> where;
  if constexpr (&roles == &kMaxBwd) {
    const int64_t windows = a.in[2].numel();
    where = engine().scratch(a, static_cast<size_t>(windows) * (far ? 4 : 2));
    launch("mge_max_pool_where", windows, 0, address(where->ptr));
  }
  launch(roles.kernel, a.out[0].numel(), address(a.out[0].ptr), where ? address(where->ptr) : 0);
}
const char* refuse(const KernelArgs& a) { return is_float(a.out[0].dtype) ? nullptr : "needs floating point"; }

// All in the order of the first operand that has one of its own.
void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  bool last = false;
  for (size_t i = 0; i < a.in.size(); ++i) last |= in_channels_last(in[i]);
  for (size_t i = 0; i < a.in.size(); ++i) last ? ask_channels_last(in[i]) : ask_row_major(in[i]);
  if (last) ask_channels_last(out[0]);
}

}  // namespace

void register_cuda_pool(KernelRegistry& r) {
  auto pool = [&](const char* op, void (*run)(const KernelArgs&)) {
    add(r, op, {.name = "nvrtc_pool", .refuse = refuse, .run = run, .layouts = layouts});
  };
  pool("max_pool2d", run<PoolAttrs, kMax>);
  pool("max_pool2d_bwd", run<PoolAttrs, kMaxBwd>);
  pool("max_pool2d_take", run<PoolAttrs, kMaxTake>);
  pool("avg_pool2d", run<AvgPoolAttrs, kAvg>);
  pool("avg_pool2d_bwd", run<AvgPoolBwdAttrs, kAvgBwd>);
}

}  // namespace mge::cuda
