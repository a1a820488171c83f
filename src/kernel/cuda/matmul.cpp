// Products by a thread for each element, for what cuBLASLt does not take: integers, and empty sums.
#include "kernel/cuda/matmul.h"

#include "kernel/cuda/written.h"

namespace mge::cuda {

Product::Product(const KernelArgs& a) {
  const auto& at = a.as<MatmulAttrs>();
  const MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  m = g.m, n = g.n, k = g.k, ta = at.ta, tb = at.tb;
  bias = a.in.size() > 2 ? &a.in[2] : nullptr;
  // The batch axes of each operand; all are contiguous.
  TensorArg y = a.out[0], x[2] = {a.in[0], a.in[1]};
  y.shape = g.batch;
  y.layout = Layout::contiguous(y.shape);
  for (int i = 0; i < y.shape.rank; ++i) y.layout.stride[i] *= m * n;
  for (TensorArg& t : x) t.shape.rank = static_cast<uint8_t>(t.shape.rank - 2);
  const TensorArg* operands[] = {&y, &x[0], &x[1]};
  batch = make_nest(g.batch, operands);
  // One weight for many rows: one large product.
  if (batch.rank == 1 && batch.stride[2][0] == 0 && batch.stride[1][0] == m * k && !ta) {
    m *= batch.size[0];
    batch.size[0] = 1;
  }
}

namespace {

void run(const KernelArgs& a) {
  const Product p(a);
  const int64_t total = a.out[0].numel();
  if (total == 0) return;
  const DType t = a.out[0].dtype;
  const char* sum = is_float(t) ? "typedef double A;\ntypedef double R;" : "typedef u64 A;\ntypedef i64 R;";
  Words w{address(a.out[0].ptr),
          address(a.in[0].ptr),
          address(a.in[1].ptr),
          p.bias ? address(p.bias->ptr) : 0,
          total,
          p.m,
          p.n,
          p.k,
          p.ta ? 1 : p.k,
          p.ta ? p.m : 1,
          p.tb ? 1 : p.n,
          p.tb ? p.k : 1,
          p.batch.rank};
  auto push = [&](const int64_t* v) {
    for (int i = 0; i < 6; ++i) w.push_back(i < p.batch.rank ? v[i] : 0);
  };
  push(p.batch.size);
  push(p.batch.stride[1].data());
  push(p.batch.stride[2].data());
  engine().launch(a, written("mge_matmul", "matmul", {{"T", t}}, sum), cover(total), {w.data(), w.size()});
}
const char* refuse(const KernelArgs& a) {
  if (!storage_type(a.out[0].dtype) || a.out[0].dtype == DType::Bool) return "needs numbers";
  for (auto& t : a.in)
    if (t.dtype != a.out[0].dtype) return "operands of several dtypes";
  return nullptr;
}

}  // namespace

void register_cuda_matmul(KernelRegistry& r) {
  add(r, "matmul", {.name = "nvrtc_matmul", .refuse = refuse, .run = run}, KernelTier::Ref);
}

}  // namespace mge::cuda
