// sort, by counting: short rows in no time, long ones in a time that grows with their square.
#include "op/index/sort.h"

#include "kernel/cuda/written.h"

namespace mge::cuda {
namespace {

void run(const KernelArgs& a) {
  const TensorArg& x = a.in[0];
  const int64_t total = x.numel();
  if (total == 0) return;
  const auto& at = a.as<SortAttrs>();
  const int axis = normalize_axis("sort", at.axis, x.shape.rank);
  int64_t inner = 1;
  for (int i = axis + 1; i < x.shape.rank; ++i) inner *= x.shape[i];
  engine().launch(
      a, written("mge_sort", "sort", {{"T", x.dtype}}), cover(total, 128),
      {total, x.shape[axis], inner, at.descending, address(x.ptr), address(a.out[0].ptr), address(a.out[1].ptr)});
}
const char* refuse(const KernelArgs& a) {
  if (a.in[0].dtype > DType::F64) return "dtype without order";
  const auto& x = a.in[0].shape;
  return x.rank && x[normalize_axis("sort", a.as<SortAttrs>().axis, x.rank)] > 1 << 17
             ? "rows of more than 131072 elements; sort them on cpu0"
             : nullptr;
}

}  // namespace

void register_cuda_sort(KernelRegistry& r) { add(r, "sort", {.name = "nvrtc_sort", .refuse = refuse, .run = run}); }

}  // namespace mge::cuda
