// float16 and bfloat16 for the heavy ops: inputs are widened to float32, the kernel that float32 would get runs, and
// its results are rounded once. Images stay in the memory order that kernel wants.
#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/layouts.h"
#include "kernel/simd/elementwise/rows.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/register.h"
#include "op/elementwise/typecvt.h"
#include "op/in_build.h"

namespace mge::simd_nn {
namespace {

bool is_16_bit(const TensorArg& t) { return t.dtype == DType::F16 || t.dtype == DType::BF16; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The arguments as float32 sees them, without memory.
struct Wide {
  SmallVec<TensorArg, 8> in, out;
  KernelArgs args;
  explicit Wide(const KernelArgs& a) : in(a.in.begin(), a.in.end()), out(a.out.begin(), a.out.end()), args(a) {
    for (auto* list : {&in, &out})
      for (TensorArg& t : *list)
        if (is_16_bit(t)) t.dtype = DType::F32;
    args.in = {in.data(), in.size()};
    args.out = {out.data(), out.size()};
  }
  Wide(const Wide&) = delete;
};

// Chosen as for row-major inputs and by rule, never by measuring: every question about one call must get the same
// kernel, and a network's strategy holds when its programs are compiled, not when they run.
const Kernel& kernel_of(const KernelArgs& a) {
  Wide w(a);
  for (TensorArg& t : w.in) ask_row_major(t);
  const Choice c = KernelRegistry::global().find(w.args, static_cast<KernelTier>(kernel_tier()));
  if (!c.kernel) fail_no_kernel(w.args, c);
  return *c.kernel;
}

const char* refuse(const KernelArgs& a) {
  bool any = false;
  for (auto* list : {&a.in, &a.out})
    for (const TensorArg& t : *list) {
      if (t.dtype == DType::F64) return "needs 16-bit floats";
      any |= is_16_bit(t);
    }
  return any && is_16_bit(a.out[0]) ? nullptr : "needs 16-bit floats";
}

void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const Kernel& k = kernel_of(a);
  Wide w(a);
  if (k.layouts && !(k.flags & kStridedInputs)) {
    k.layouts(w.args, w.in.data(), w.out.data());
    for (size_t i = 0; i < a.in.size(); ++i) in[i].layout = w.in[i].layout;
    for (size_t i = 0; i < a.out.size(); ++i) out[i].layout = w.out[i].layout;
    return;
  }
  for (size_t i = 0; i < a.in.size(); ++i) ask_row_major(in[i]);
}

size_t workspace(const KernelArgs& a) {
  const Kernel& k = kernel_of(a);
  Wide w(a);
  size_t bytes = 0;
  for (auto* list : {&a.in, &a.out})
    for (const TensorArg& t : *list)
      if (is_16_bit(t)) bytes += aligned(static_cast<size_t>(t.numel()) * sizeof(float));
  return bytes + (k.workspace ? k.workspace(w.args) : 0);
}

void convert(const TensorArg& from, const TensorArg& to) {
  static const OpDef& typecvt = OpRegistry::global().get("typecvt");
  const RowFn row = find_row(typecvt, from.dtype, to.dtype);
  const size_t step_from = dtype_size(from.dtype), step_to = dtype_size(to.dtype);
  parallel_for(from.numel(), value_grain(0.5), [&](int64_t b, int64_t e) {
    const void* src = static_cast<const char*>(from.ptr) + static_cast<size_t>(b) * step_from;
    const int64_t one = 1;
    row(&src, &one, static_cast<char*>(to.ptr) + static_cast<size_t>(b) * step_to, e - b);
  });
}

void run(const KernelArgs& a) {
  const Kernel& k = kernel_of(a);
  Wide w(a);
  char* at = static_cast<char*>(a.workspace);
  auto place = [&](std::span<const TensorArg> narrow, SmallVec<TensorArg, 8>& wide) {
    for (size_t i = 0; i < narrow.size(); ++i)
      if (is_16_bit(narrow[i])) wide[i].ptr = at, at += aligned(static_cast<size_t>(narrow[i].numel()) * sizeof(float));
  };
  place(a.in, w.in);
  place(a.out, w.out);
  w.args.workspace = at;
  for (size_t i = 0; i < a.in.size(); ++i)
    if (is_16_bit(a.in[i])) convert(a.in[i], w.in[i]);
  k.run(w.args);
  for (size_t i = 0; i < a.out.size(); ++i)
    if (is_16_bit(a.out[i])) convert(w.out[i], a.out[i]);
}

}  // namespace

void register_through_float(KernelRegistry& r) {
  if constexpr (!dtype_in_build(DType::F16) && !dtype_in_build(DType::BF16)) return;
  // Not conv2d_fused and batch_norm_infer: their steps are rounded one by one, like the ops they stand for.
  for (OpName op : std::initializer_list<OpName>{
           "matmul",         "conv2d",       "conv2d_dx",        "conv2d_dw",  "conv3d",         "conv3d_dx",
           "conv3d_dw",      "max_pool2d",   "max_pool2d_bwd",   "avg_pool2d", "avg_pool2d_bwd", "batch_norm_train",
           "batch_norm_bwd", "layer_norm",   "layer_norm_bwd",   "softmax",    "softmax_bwd",    "logsoftmax",
           "logsoftmax_bwd", "softmax_xent", "softmax_xent_bwd", "recurrence", "recurrence_bwd"})
    r.add(op, KernelTier::Simd,
          Kernel{.name = "simd_16bit", .refuse = refuse, .run = run, .workspace = workspace, .layouts = layouts});
}

}  // namespace mge::simd_nn
