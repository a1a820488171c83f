// Copies for the shape ops that could not be views, and the ops that always write.
#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/kernel.h"
#include "kernel/row_io.h"
#include "op/in_build.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

void run_copy(const KernelArgs& a) { copy_strided(a.in[0], a.out[0]); }

// Inputs arrive contiguous, so reshape is a plain copy under the new shape.
void run_reshape(const KernelArgs& a) {
  TensorArg src = a.in[0];
  src.shape = a.out[0].shape;
  src.layout = Layout::contiguous(src.shape);
  copy_strided(src, a.out[0]);
}

void run_through_view(const KernelArgs& a) {
  TensorArg src = a.in[0];
  Layout l, in = a.in[0].layout;
  in.offset = 0;  // ptr already includes it
  MGE_ASSERT(a.op->view({a.attrs, a.in[0].shape, in, a.out[0].shape, &l}), "{} of a strided tensor is no view",
             a.op->name);
  src.ptr = a.in[0].data<char>() + l.offset * static_cast<int64_t>(dtype_size(src.dtype));
  src.shape = a.out[0].shape;
  src.layout = l;
  copy_strided(src, a.out[0]);
}

void run_set_slice(const KernelArgs& a) {
  if (a.out[0].ptr != a.in[0].ptr) copy_strided(a.in[0], a.out[0]);
  const auto& s = a.as<SliceAttrs>();
  Layout base = a.out[0].layout;
  base.offset = 0;
  TensorArg region = a.out[0];
  Layout l = slice_layout(s, a.out[0].shape, base);
  region.ptr = a.out[0].data<char>() + l.offset * static_cast<int64_t>(dtype_size(region.dtype));
  region.shape = a.in[1].shape;
  region.layout = l;
  copy_strided(a.in[1], region);
}

void run_concat(const KernelArgs& a) {
  int axis = normalize_axis("concat", a.as<AxisAttrs>().axis, a.out[0].shape.rank);
  int64_t at = 0;
  for (auto& in : a.in) {
    TensorArg region = a.out[0];
    region.ptr = a.out[0].data<char>() + at * a.out[0].layout.stride[axis] * static_cast<int64_t>(dtype_size(in.dtype));
    region.shape = in.shape;
    if (in.ptr != region.ptr) copy_strided(in, region);  // a program may have had it written there
    at += in.shape[axis];
  }
}

// n elements of `size` bytes, all like `one`: a block of them, copied by whoever is free.
void repeat(char* to, const void* one, size_t size, int64_t n) {
  constexpr size_t kBlock = 4096;
  alignas(64) char block[kBlock];
  std::memcpy(block, one, size);
  const auto filled = std::min(kBlock, size * static_cast<size_t>(n));
  for (size_t have = size; have < filled; have *= 2) std::memcpy(block + have, block, std::min(have, filled - have));
  parallel_for(n, byte_grain(size), [&](int64_t begin, int64_t end) {
    const char* const stop = to + static_cast<size_t>(end) * size;
    for (char* at = to + static_cast<size_t>(begin) * size; at < stop; at += kBlock)
      std::memcpy(at, block, std::min(kBlock, static_cast<size_t>(stop - at)));
  });
}

// One number by the rules of typecvt, repeated.
void fill(const TensorArg& out, double v) {
  DType t = out.dtype;
  switch (t) {
    case DType::QU8:
      t = DType::U8;
      break;
    case DType::QI8:
    case DType::QI1:
      t = DType::I8;
      break;
    case DType::QI16:
      t = DType::I16;
      break;
    case DType::QI32:
      t = DType::I32;
      break;
    default:
      if (t > DType::F64) fail(ErrorKind::NotImplemented, "full: dtype {} cannot be filled.", dtype_name(t));
  }
  uint64_t one = 0;
  store_row(t, &one, 1, Compute::F64, &v, 1);
  repeat(out.data<char>(), &one, dtype_size(t), out.numel());
}
void run_full(const KernelArgs& a) { fill(a.out[0], a.as<FullAttrs>().value); }
void run_fill_like(const KernelArgs& a) { fill(a.out[0], a.as<ValueAttrs>().value); }

void run_shape_of(const KernelArgs& a) {
  auto* out = a.out[0].data<int32_t>();
  for (int64_t d : a.in[0].shape) *out++ = static_cast<int32_t>(d);
}
void run_count_of(const KernelArgs& a) {
  double count = 1;
  for (int64_t axis : a.as<CountAttrs>().axes) count *= a.in[0].data<const int32_t>()[axis];
  fill(a.out[0], count);
}

}  // namespace

void register_ref_shape(KernelRegistry& r) {
  auto add = [&](OpName op, void (*run)(const KernelArgs&), uint32_t flags)
                 MGE_INLINED { r.add(op, KernelTier::Ref, Kernel{.name = "ref_copy", .run = run, .flags = flags}); };
  for (OpName op : std::initializer_list<OpName>{"reshape", "expand_dims", "squeeze", "flatten"})
    add(op, run_reshape, 0);
  for (OpName op : std::initializer_list<OpName>{"transpose", "broadcast_to", "slice"})
    add(op, run_through_view, kStridedInputs);
  add("copy", run_copy, kStridedInputs);
  add("copy_to", run_copy, kStridedInputs);
  add("set_slice", run_set_slice, kStridedInputs | kInPlace0);
  add("concat", run_concat, kStridedInputs);
  add("full", run_full, 0);
  add("fill_like", run_fill_like, kStridedInputs);
  r.add("shape_of", KernelTier::Ref, Kernel{.name = "ref_shape_of", .run = run_shape_of, .flags = kStridedInputs});
  r.add("count_of", KernelTier::Ref, Kernel{.name = "ref_count_of", .run = run_count_of});
}

}  // namespace mge
