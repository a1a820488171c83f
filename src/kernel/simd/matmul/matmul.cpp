// matmul on strided operands: whatever the GEMM can read in place it reads in place.
#include <vector>

#include "kernel/copy.h"
#include "kernel/simd/matmul/gemm.h"
#include "kernel/simd/nn_simd.h"
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

void run_matmul(const KernelArgs& a) {
  const auto& at = a.as<MatmulAttrs>();
  MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  Operand x, y;
  prepare(a.in[0], at.ta, g.batch, &x);
  prepare(a.in[1], at.tb, g.batch, &y);
  float* c = a.out[0].data<float>();
  int64_t batches = g.batch.numel(), matrix = g.m * g.n;
  if (batches == 0 || matrix == 0) return;

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
  std::vector<float> dense;  // a bias that is not
  const float* bias = a.in.size() == 3 ? a.in[2].data<float>() : nullptr;
  if (bias && !a.in[2].contiguous()) {
    dense.resize(static_cast<size_t>(g.n));
    TensorArg to = a.in[2];
    to.ptr = dense.data(), to.layout = Layout::contiguous(to.shape);
    copy_strided(a.in[2], to);
    bias = dense.data();
  }
  if (rank == 0) return simd::sgemm(x.t, y.t, g.m, g.n, g.k, x.p, x.ld, y.p, y.ld, c, g.n, false, bias);
  int last = rank - 1;
  // One matrix b for many a that lie row after row: a single tall product.
  bool tall = rank == 1 && sy[0] == 0 && !x.t && (g.m == 1 ? true : sx[0] == g.m * x.ld);
  if (tall) {
    int64_t ld = g.m == 1 ? sx[0] : x.ld;
    if (ld >= g.k) return simd::sgemm(false, y.t, size[0] * g.m, g.n, g.k, x.p, ld, y.p, y.ld, c, g.n, false, bias);
  }
  for (int64_t b = 0; b < batches / size[last]; ++b) {
    int64_t ox = 0, oy = 0, q = b;
    for (int i = last - 1; i >= 0; --i) {
      ox += q % size[i] * sx[i];
      oy += q % size[i] * sy[i];
      q /= size[i];
    }
    simd::sgemm_batched(size[last], x.t, y.t, g.m, g.n, g.k, x.p + ox, x.ld, sx[last], y.p + oy, y.ld, sy[last],
                        c + b * size[last] * matrix, g.n, matrix, false, bias);
  }
}

}  // namespace

void register_matmul(KernelRegistry& r) { add(r, "matmul", "simd_gemm", run_matmul, {.flags = kStridedInputs}); }

}  // namespace mge::simd_nn
