#include "op/linalg/linalg.h"

#include <algorithm>

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

void infer_matinv(InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 2, kMaxRank);
  const Shape& s = c.shape(0);
  MGE_CHECK(s[s.rank - 1] == s[s.rank - 2], Value, "matinv: only square matrices have an inverse; got x {}.", s.str());
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = s;
}

double cost_matinv(const InferCtx& c) {
  return 2.0 * static_cast<double>(c.shape(0).numel()) * static_cast<double>(c.shape(0).back());
}

void infer_svd(InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 2, kMaxRank);
  bool full = attrs_as<SvdAttrs>(c.attrs).full_matrices;
  const Shape& s = c.shape(0);
  int64_t m = s[s.rank - 2], n = s[s.rank - 1], k = std::min(m, n);
  for (auto& o : c.out) {
    o.dtype = c.dtype(0);
    o.shape = Shape(s.d, s.rank - 2);
  }
  auto matrix = [](Shape& shape, int64_t rows, int64_t cols) { shape.push_back(rows), shape.push_back(cols); };
  c.out[0].shape.push_back(k);
  matrix(c.out[1].shape, m, full ? m : k);
  matrix(c.out[2].shape, full ? n : k, n);
}

double cost_svd(const InferCtx& c) {  // some ten sweeps over all pairs of columns
  const Shape& s = c.shape(0);
  double m = static_cast<double>(s[s.rank - 2]), n = static_cast<double>(s[s.rank - 1]);
  return 60.0 * static_cast<double>(s.numel()) * std::min(m, n);
}

void infer_eye(InferCtx& c) {
  const auto& at = attrs_as<EyeAttrs>(c.attrs);
  MGE_CHECK(at.rows >= 0 && at.cols >= 0, Value, "eye: sizes must not be negative; got {} and {}.", at.rows, at.cols);
  MGE_CHECK(is_float(at.dtype) || is_int(at.dtype) || at.dtype == DType::Bool, Type,
            "eye: needs a number or bool dtype; got {}.", dtype_name(at.dtype));
  c.out[0].dtype = at.dtype;
  c.out[0].shape = Shape{at.rows, at.cols};
}

void decompose_eye(Emitter& em, const AttrsBase* attrs, std::span<const Val>, std::span<Val> out) {
  const auto& at = attrs_as<EyeAttrs>(attrs);
  Val zero = em.emit1("full", {}, make_attrs(FullAttrs{{}, 0, DType::I32}));
  Val row = reshape(iota(zero, at.rows), Shape{at.rows, 1}), col = iota(zero, at.cols);
  out[0] = cast(binary("eq", col - row, scalar_like(row, static_cast<double>(at.k))), at.dtype);
}

}  // namespace

void register_linalg(OpRegistry& r) {
  r.op("matinv")
      .in("x")
      .out("y")
      .refuses(0b1)
      .infer(infer_matinv)
      .cost(cost_matinv)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc(
          "Inverse of each matrix, by Gauss-Jordan elimination with row pivots in double; a singular one is an error.");
  r.op("svd")
      .attrs<SvdAttrs>()
      .in("x")
      .out("s", "u", "vh")
      .infer(infer_svd)
      .cost(cost_svd)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("x = u * s * vh with orthonormal u and vh and s falling, by one-sided Jacobi rotations in double.");
  r.op("eye")
      .attrs<EyeAttrs>()
      .out("y")
      .infer(infer_eye)
      .traits(kNoGrad)
      .decompose(decompose_eye)
      .doc("Ones on the k-th diagonal, zeros elsewhere.");
}

}  // namespace mge
