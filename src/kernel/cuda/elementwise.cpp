// All elementwise ops, casts and fused regions without a reduction: text made from the scalar bodies, one kernel each.
#include <memory>
#include <unordered_map>

#include "kernel/cuda/region.h"
#include "kernel/layouts.h"
#include "op/in_build.h"

namespace mge::cuda {
namespace {

// The dtypes in a key, four bits each.
uint64_t dtypes_of(std::span<const TensorArg> ts) {
  uint64_t k = ts.size();
  for (auto& t : ts) k = k << 5 | static_cast<uint64_t>(t.dtype);
  return k;
}

const FusedRegion& single_region(const KernelArgs& a, uint64_t dtypes) {
  static thread_local std::unordered_map<uint64_t, std::unique_ptr<FusedRegion>> made;
  const uint64_t key = dtypes << 16 | a.op->id;
  auto& r = made[key];
  if (!r) {
    SmallVec<DType, 4> in;
    for (auto& t : a.in) in.push_back(t.dtype);
    r = std::make_unique<FusedRegion>(region_of(*a.op, a.attrs, {in.data(), in.size()}));
  }
  return *r;
}

}  // namespace

void run_elementwise(const KernelArgs& a) {
  const uint64_t dtypes = dtypes_of(a.in) << 5 | static_cast<uint64_t>(a.out[0].dtype);
  const std::string name = "mge_" + a.op->name;
  run_region(a, single_region(a, dtypes), {static_cast<uint64_t>(Family::Region), a.op->id, dtypes}, name.c_str());
}
namespace {

const char* refuse_single(const KernelArgs& a) {
  for (auto& t : a.in)
    if (!storage_type(t.dtype)) return "this dtype has no kernels on the GPU";
  if (!storage_type(a.out[0].dtype)) return "this dtype has no kernels on the GPU";
  if (!a.op->scalar) return nullptr;
  const DType t = a.in[a.in.size() - 1].dtype;
  return a.op->scalar->row[static_cast<int>(compute_of(t))] ? nullptr : "no scalar body for this dtype";
}

void run_fused(const KernelArgs& a) {
  run_region(a, attrs_as<FusedRegion>(a.attrs), {static_cast<uint64_t>(Family::Region), 0, region_number(a.attrs)},
             "mge_fused");
}
const char* refuse_fused(const KernelArgs& a) {
  if (a.in.size() > 16) return "more than 16 inputs";
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  if (r.reduction() >= 0) return "the region has a reduction";
  return refuse_region(r);
}
void fused_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  keep_channels_last(a, in, out);
  for (size_t o = 1; o < a.out.size(); ++o) out[o].layout = out[0].layout;
}

}  // namespace

void register_cuda_elementwise(KernelRegistry& r) {
  const OpRegistry& ops = OpRegistry::global();
  for (size_t id = 0; id < ops.size(); ++id) {
    const OpDef& op = ops.at(static_cast<OpId>(id));
    if (!op.scalar && op.name != "typecvt") continue;
    r.add(op.name, KernelTier::Simd,
          {.name = "nvrtc_elementwise",
           .refuse = refuse_single,
           .run = run_elementwise,
           .flags = kStridedInputs | (op.scalar ? kInPlaceAny : kInPlace0),
           .layouts = keep_channels_last},
          DeviceKind::Cuda);
  }
  r.add("fused", KernelTier::Simd,
        {.name = "nvrtc_fused",
         .refuse = refuse_fused,
         .run = run_fused,
         .flags = kStridedInputs | kInPlaceAll,
         .layouts = fused_layouts},
        DeviceKind::Cuda);
}

}  // namespace mge::cuda
