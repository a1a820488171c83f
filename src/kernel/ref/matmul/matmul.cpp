#include "op/matmul/matmul.h"
#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"

namespace mge {
namespace {

// Element offset of the matrix that broadcast batch index `b` reads.
int64_t batch_offset(const Shape& batch, int64_t b, const TensorArg& t) {
  int64_t offset = 0;
  for (int i = batch.rank - 1; i >= 0; --i) {
    int64_t ix = b % batch[i];
    b /= batch[i];
    int ax = i - (batch.rank - (t.shape.rank - 2));
    if (ax >= 0 && t.shape[ax] != 1) offset += ix * t.layout.stride[ax];
  }
  return offset;
}

struct Matmul {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<MatmulAttrs>();
    MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
    int64_t as_m = at.ta ? 1 : g.k, as_k = at.ta ? g.m : 1, bs_k = at.tb ? 1 : g.n, bs_n = at.tb ? g.k : 1;
    T* y = a.out[0].data<T>();
    const T* bias = a.in.size() == 3 ? a.in[2].data<T>() : nullptr;
    parallel_for(g.batch.numel() * g.m, step_grain(g.n * g.k), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* pa = a.in[0].data<T>() + batch_offset(g.batch, r / g.m, a.in[0]) + r % g.m * as_m;
        const T* pb = a.in[1].data<T>() + batch_offset(g.batch, r / g.m, a.in[1]);
        for (int64_t j = 0; j < g.n; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < g.k; ++k)
            sum += static_cast<double>(pa[k * as_k]) * static_cast<double>(pb[k * bs_k + j * bs_n]);
          y[r * g.n + j] = static_cast<T>(bias ? sum + static_cast<double>(bias[j]) : sum);
        }
      }
    });
  }
};

// U: the unsigned type of the elements, which wraps as their products and sums shall.
template <class U>
void run_whole(const KernelArgs& a) {
  const auto& at = a.as<MatmulAttrs>();
  const MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  const int64_t as_m = at.ta ? 1 : g.k, as_k = at.ta ? g.m : 1;
  const U* bias = a.in.size() == 3 ? a.in[2].data<U>() : nullptr;
  U* y = a.out[0].data<U>();
  parallel_for(g.batch.numel() * g.m, step_grain(g.n * g.k), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const U* pa = a.in[0].data<U>() + batch_offset(g.batch, r / g.m, a.in[0]) + r % g.m * as_m;
      const U* pb = a.in[1].data<U>() + batch_offset(g.batch, r / g.m, a.in[1]);
      U* row = y + r * g.n;
      for (int64_t j = 0; j < g.n; ++j) row[j] = bias ? bias[j] : 0;
      if (at.tb) {
        for (int64_t j = 0; j < g.n; ++j)
          for (int64_t k = 0; k < g.k; ++k) row[j] += pa[k * as_k] * pb[j * g.k + k];
      } else {
        for (int64_t k = 0; k < g.k; ++k)
          for (int64_t j = 0; j < g.n; ++j) row[j] += pa[k * as_k] * pb[k * g.n + j];
      }
    }
  });
}
const char* refuse_fractions(const KernelArgs& a) { return is_int(a.out[0].dtype) ? nullptr : "needs integers"; }

}  // namespace

void register_ref_matmul(KernelRegistry& r) {
  ref::add_floating<Matmul>(r, "matmul", "ref_matmul");
  r.add("matmul", KernelTier::Ref,
        Kernel{.name = "ref_matmul_whole", .refuse = refuse_fractions, .run = [](const KernelArgs& a) {
                 a.out[0].dtype == DType::I64 ? run_whole<uint64_t>(a) : run_whole<uint32_t>(a);
               }});
}

}  // namespace mge
