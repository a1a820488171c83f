// Copies for the shape ops that could not be views, and the ops that always write.
#include "op/shape/shape_ops.h"

#include "kernel/cuda/region.h"
#include "kernel/cuda/written.h"
#include "kernel/row_io.h"
#include "op/elementwise/typecvt.h"

namespace mge::cuda {

const Code& written(const char* name, const char* header, std::initializer_list<Type> types, const char* define) {
  Key key{static_cast<uint64_t>(Family::Kernel), hash_bytes(name), static_cast<uint64_t>(address(define))};
  for (auto& t : types) key.push_back(static_cast<uint64_t>(t.dtype));
  return code_of(key, [&] {
    std::string text = "#include \"kernel/cuda/device/types.cuh\"\n";
    for (auto& t : types) text += format("typedef {} {};\n", storage_type(t.dtype), t.name);
    text += define + format("\n#include \"kernel/cuda/device/{}.cuh\"\n", header);
    return new Code(name, std::move(text), format("mge_unit_{}", header));
  });
}

DType carrier(DType t) {
  switch (dtype_size(t)) {
    case 1:
      return DType::U8;
    case 2:
      return DType::U16;
    case 4:
      return DType::I32;
    case 8:
      return DType::I64;
    default:
      return DType::Bool;
  }
}
const char* refuse_packed(const KernelArgs& a) {
  return carrier(a.out[0].dtype) == DType::Bool ? "packed dtype" : nullptr;
}

// A cast from bytes to the same bytes.
void copy_on_device(const KernelArgs& a, const TensorArg& src, const TensorArg& dst) {
  static const OpDef& op = OpRegistry::global().get("typecvt");
  const DType t = carrier(src.dtype), one[] = {t};
  TensorArg from = src, to = dst;
  from.dtype = to.dtype = t;
  KernelArgs c = a;
  c.in = {&from, 1};
  c.out = {&to, 1};
  static thread_local const auto regions = std::make_unique<FusedRegion[]>(kDTypeCount);  // not in static TLS
  FusedRegion& r = regions[static_cast<int>(t)];
  if (r.steps.empty()) r = region_of(op, make_attrs(TypeCvtAttrs{t}).get(), one);
  run_region(c, r, {static_cast<uint64_t>(Family::Copy), static_cast<uint64_t>(t)}, "mge_copy");
}

namespace {

void run_copy(const KernelArgs& a) { copy_on_device(a, a.in[0], a.out[0]); }

// Inputs arrive contiguous, so reshape is a plain copy under the new shape.
void run_reshape(const KernelArgs& a) {
  TensorArg src = a.in[0];
  src.shape = a.out[0].shape;
  src.layout = Layout::contiguous(src.shape);
  copy_on_device(a, src, a.out[0]);
}

TensorArg at_layout(const TensorArg& t, const Shape& shape, const Layout& l) {
  TensorArg r = t;
  r.ptr = t.data<char>() + l.offset * static_cast<int64_t>(dtype_size(t.dtype));
  r.shape = shape;
  r.layout = l;
  return r;
}
Layout from_pointer(Layout l) {
  l.offset = 0;  // ptr already includes it
  return l;
}

void run_through_view(const KernelArgs& a) {
  Layout l;
  MGE_ASSERT(a.op->view({a.attrs, a.in[0].shape, from_pointer(a.in[0].layout), a.out[0].shape, &l}),
             "{} of a strided tensor is no view", a.op->name);
  copy_on_device(a, at_layout(a.in[0], a.out[0].shape, l), a.out[0]);
}

void run_set_slice(const KernelArgs& a) {
  if (a.out[0].ptr != a.in[0].ptr) copy_on_device(a, a.in[0], a.out[0]);
  const Layout l = slice_layout(a.as<SliceAttrs>(), a.out[0].shape, from_pointer(a.out[0].layout));
  copy_on_device(a, a.in[1], at_layout(a.out[0], a.in[1].shape, l));
}

void run_concat(const KernelArgs& a) {
  const int axis = normalize_axis("concat", a.as<AxisAttrs>().axis, a.out[0].shape.rank);
  Layout l = from_pointer(a.out[0].layout);
  for (auto& in : a.in) {
    copy_on_device(a, in, at_layout(a.out[0], in.shape, l));
    l.offset += in.shape[axis] * l.stride[axis];
  }
}

const char* refuse_fill(const KernelArgs& a) {
  const DType t = a.out[0].dtype;
  return t <= DType::F64 || t == DType::QU8 || t == DType::QI8 || t == DType::QI1 || t == DType::QI16 ||
                 t == DType::QI32
             ? nullptr
             : "this dtype cannot be filled";
}
void fill(const KernelArgs& a, double v) {
  const TensorArg& out = a.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  const DType moved = carrier(out.dtype);
  DType t = out.dtype <= DType::F64 ? out.dtype : out.dtype == DType::QU8 ? DType::U8 : moved;
  if (out.dtype == DType::QI8 || out.dtype == DType::QI1) t = DType::I8;
  if (out.dtype == DType::QI16) t = DType::I16;
  uint64_t one = 0;
  write_scalar(&one, t, v);
  engine().launch(a, written("mge_fill", "fill", {{"T", moved}}), cover(n),
                  {n, address(out.ptr), static_cast<Word>(one)});
}
void run_full(const KernelArgs& a) { fill(a, a.as<FullAttrs>().value); }
void run_fill_like(const KernelArgs& a) { fill(a, a.as<ValueAttrs>().value); }

}  // namespace

void register_cuda_shape(KernelRegistry& r) {
  auto copies = [&](const char* op, void (*run)(const KernelArgs&), uint32_t flags) {
    add(r, op, {.name = "nvrtc_copy", .refuse = refuse_packed, .run = run, .flags = flags});
  };
  for (const char* op : {"reshape", "expand_dims", "squeeze", "flatten"}) copies(op, run_reshape, 0);
  for (const char* op : {"transpose", "broadcast_to", "slice"}) copies(op, run_through_view, kStridedInputs);
  copies("copy", run_copy, kStridedInputs);
  copies("copy_to", run_copy, kStridedInputs);
  copies("set_slice", run_set_slice, kStridedInputs | kInPlace0);
  copies("concat", run_concat, kStridedInputs);
  add(r, "full", {.name = "nvrtc_fill", .refuse = refuse_fill, .run = run_full});
  add(r, "fill_like", {.name = "nvrtc_fill", .refuse = refuse_fill, .run = run_fill_like, .flags = kStridedInputs});
}

}  // namespace mge::cuda
