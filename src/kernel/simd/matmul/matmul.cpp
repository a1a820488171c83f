// matmul on strided operands: whatever the GEMM can read in place it reads in place.
#include <vector>

#include "kernel/copy.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/matmul/steps.h"
#include "kernel/simd/nn_simd.h"
#include "op/in_build.h"
#include "op/matmul/matmul.h"

namespace mge::simd_nn {
namespace {

struct Operand {
  const float* p;
  bool t;  // transposed in memory
  int64_t ld;
  int64_t stride[kMaxRank];  // of each dim of the broadcast batch
  std::vector<float> copy;   // when neither axis of the matrix is contiguous
};

void prepare(const TensorArg& t, bool transposed, const Shape& batch, Operand* o) {
  TensorArg use = t;
  int r = t.shape.rank;
  auto fits = [&](int row, int col) {  // rows of contiguous columns, not overlapping
    int64_t rows = use.shape[row], cols = use.shape[col];
    return (cols <= 1 || use.layout.stride[col] == 1) && (rows <= 1 || use.layout.stride[row] >= cols);
  };
  bool plain = fits(r - 2, r - 1), flipped = !plain && fits(r - 1, r - 2);
  if (!plain && !flipped) {
    o->copy.resize(static_cast<size_t>(t.numel()));
    use.ptr = o->copy.data();
    use.layout = Layout::contiguous(t.shape);
    copy_strided(t, use);
  }
  int row = flipped ? r - 1 : r - 2, col = flipped ? r - 2 : r - 1;
  o->p = use.data<float>();
  o->t = transposed != flipped;
  o->ld = use.shape[row] <= 1 ? std::max<int64_t>(1, use.shape[col]) : use.layout.stride[row];
  for (int i = 0; i < batch.rank; ++i) {
    int ax = i - (batch.rank - (r - 2));
    o->stride[i] = ax < 0 || t.shape[ax] == 1 ? 0 : use.layout.stride[ax];
  }
}

// The product alone, and what is done with its blocks. Inlined for the sake of small products.
[[gnu::always_inline]] inline void multiply(const KernelArgs& a, const MatmulAttrs& at, const MatmulGeom& g,
                                            bool has_bias, const MatmulEpilogue* steps) {
  Operand x;
  prepare(a.in[0], at.ta, g.batch, &x);
  float* c = a.out[0].data<float>();
  int64_t batches = g.batch.numel(), matrix = g.m * g.n;
  if (batches == 0 || matrix == 0) return;

  std::vector<float> dense;  // a bias that is not
  const float* bias = has_bias ? a.in[2].data<float>() : nullptr;
  if (bias && !a.in[2].contiguous()) {
    dense.resize(static_cast<size_t>(g.n));
    TensorArg to = a.in[2];
    to.ptr = dense.data(), to.layout = Layout::contiguous(to.shape);
    copy_strided(a.in[2], to);
    bias = dense.data();
  }
  int64_t first = 0;  // row of all batches where a product starts
  auto finish = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    (*steps)(first + row, rows, column, columns);
  };
  const simd::BlockFn each = finish, *done = steps ? &each : nullptr;
  if (a.prepared) {  // prepared_bytes has made sure that rows of several batches lie one after the other
    return simd::sgemm_packed(x.t, batches * g.m, g.n, g.k, x.p, batches == 1 ? x.ld : g.k,
                              static_cast<const float*>(a.prepared), c, g.n, bias, done);
  }

  Operand y;
  prepare(a.in[1], at.tb, g.batch, &y);
  // Fold neighbouring batch dims that both operands walk with one stride.
  int64_t size[kMaxRank], sx[kMaxRank], sy[kMaxRank];
  int rank = 0;
  for (int i = 0; i < g.batch.rank; ++i) {
    if (g.batch[i] == 1) continue;
    if (rank && sx[rank - 1] == x.stride[i] * g.batch[i] && sy[rank - 1] == y.stride[i] * g.batch[i]) {
      size[rank - 1] *= g.batch[i], sx[rank - 1] = x.stride[i], sy[rank - 1] = y.stride[i];
    } else {
      size[rank] = g.batch[i], sx[rank] = x.stride[i], sy[rank] = y.stride[i], ++rank;
    }
  }
  if (rank == 0) return simd::sgemm(x.t, y.t, g.m, g.n, g.k, x.p, x.ld, y.p, y.ld, c, g.n, false, bias, done);
  int last = rank - 1;
  // One matrix b for many a that lie row after row: a single tall product.
  bool tall = rank == 1 && sy[0] == 0 && !x.t && (g.m == 1 ? true : sx[0] == g.m * x.ld);
  if (tall) {
    int64_t ld = g.m == 1 ? sx[0] : x.ld;
    if (ld >= g.k)
      return simd::sgemm(false, y.t, size[0] * g.m, g.n, g.k, x.p, ld, y.p, y.ld, c, g.n, false, bias, done);
  }
  for (int64_t b = 0; b < batches / size[last]; ++b) {
    int64_t ox = 0, oy = 0, q = b;
    for (int i = last - 1; i >= 0; --i) {
      ox += q % size[i] * sx[i];
      oy += q % size[i] * sy[i];
      q /= size[i];
    }
    first = b * size[last] * g.m;
    simd::sgemm_batched(size[last], x.t, y.t, g.m, g.n, g.k, x.p + ox, x.ld, sx[last], y.p + oy, y.ld, sy[last],
                        c + b * size[last] * matrix, g.n, matrix, false, bias, done);
  }
}

void run_matmul(const KernelArgs& a) {
  const auto& at = a.as<MatmulAttrs>();
  multiply(a, at, matmul_geom(at, a.in[0].shape, a.in[1].shape), a.in.size() == 3, nullptr);
}
void run_matmul_fused(const KernelArgs& a) {
  const auto& at = a.as<MatmulFusedAttrs>();
  const MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  const MatmulEpilogue steps(a, g);
  multiply(a, at, g, at.has_bias, &steps);
}

// A constant b: one matrix, and an a whose rows lie evenly, or that is one matrix.
size_t prepared_bytes(const KernelArgs& a) {
  const MatmulAttrs& at = matmul_attrs(*a.op, a.attrs);
  const TensorArg &x = a.in[0], &y = a.in[1];
  const MatmulGeom g = matmul_geom(at, x.shape, y.shape);
  const bool one = y.shape.numel() == g.k * g.n && (x.shape.numel() == g.m * g.k || (!at.ta && x.contiguous()));
  if (!one || g.batch.numel() * g.m * g.n * g.k == 0) return 0;
  return static_cast<size_t>(simd::packed_floats(g.n, g.k)) * sizeof(float);
}
void prepare_b(const KernelArgs& a, void* to) {
  const MatmulAttrs& at = matmul_attrs(*a.op, a.attrs);
  const MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  Operand y;
  prepare(a.in[1], at.tb, g.batch, &y);
  simd::pack_b(y.t, g.n, g.k, y.p, y.ld, static_cast<float*>(to));
}

}  // namespace

void register_matmul(KernelRegistry& r) {
  Kernel k{.name = "simd_gemm",
           .refuse = refuse_not_f32,
           .run = run_matmul,
           .flags = kStridedInputs,
           .prepare = {1, prepared_bytes, prepare_b}};
  r.add("matmul", KernelTier::Simd, k);
  k.name = "simd_gemm_fused", k.run = run_matmul_fused;
  r.add("matmul_fused", KernelTier::Simd, k);
}

}  // namespace mge::simd_nn
