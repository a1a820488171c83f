#include "op/matmul/matmul.h"

#include "op/nn.h"

namespace mge {
namespace {

// Whole numbers are multiplied and added as such, modulo 2^32 or 2^64.
void check_number(const InferCtx& c, size_t i) {
  if (c.dtype(i) != DType::I32 && c.dtype(i) != DType::I64) nn::check_float(c, i);
  if (i) nn::check_dtype(c, i, c.dtype(0));
}

Shape batch_of(const Shape& s) { return Shape(s.d, s.rank - 2); }

void infer_matmul(InferCtx& c) {
  const auto& at = attrs_as<MatmulAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) {
    check_number(c, i);
    nn::check_rank(c, i, 2, kMaxRank);
  }
  const Shape &a = c.shape(0), &b = c.shape(1);
  int64_t m = a[a.rank - (at.ta ? 1 : 2)], ka = a[a.rank - (at.ta ? 2 : 1)];
  int64_t kb = b[b.rank - (at.tb ? 1 : 2)], n = b[b.rank - (at.tb ? 2 : 1)];
  if (ka != kb) {
    int64_t flip_a = m, flip_b = n;  // the inner size after transposing one side the other way
    const char* hint = flip_a == kb && flip_b == ka ? " Transposing either side would match."
                       : flip_b == ka ? (at.tb ? " transpose_b=False would match." : " transpose_b=True would match.")
                       : flip_a == kb ? (at.ta ? " transpose_a=False would match." : " transpose_a=True would match.")
                                      : "";
    fail(ErrorKind::Value, "matmul: inner sizes differ, {} against {}; got a {}{}, b {}{}.{}", ka, kb, a.str(),
         at.ta ? " (transposed)" : "", b.str(), at.tb ? " (transposed)" : "", hint);
  }
  if (c.n() == 3) {
    check_number(c, 2);
    nn::check_shape_is(c, 2, Shape{n}, "(columns of the result)");
  }
  Meta& y = c.out[0];
  y.dtype = c.dtype(0);
  y.shape = broadcast_shapes("matmul (batch dimensions)", batch_of(a), batch_of(b));
  y.shape.push_back(m);
  y.shape.push_back(n);
}

double cost_matmul(const InferCtx& c) {
  MatmulGeom g = matmul_geom(attrs_as<MatmulAttrs>(c.attrs), c.shape(0), c.shape(1));
  return 2.0 * static_cast<double>(g.batch.numel()) * static_cast<double>(g.m) * static_cast<double>(g.n) *
         static_cast<double>(g.k);
}

}  // namespace

MatmulGeom matmul_geom(const MatmulAttrs& at, const Shape& a, const Shape& b) {
  return {a[a.rank - (at.ta ? 1 : 2)], b[b.rank - (at.tb ? 2 : 1)], a[a.rank - (at.ta ? 2 : 1)],
          broadcast_shapes("matmul", batch_of(a), batch_of(b))};
}

void register_matmul(OpRegistry& r) {
  r.op("matmul")
      .attrs<MatmulAttrs>()
      .in("a", "b")
      .opt("bias")
      .out("y")
      .infer(infer_matmul)
      .amp(Amp::Low)
      .cost(cost_matmul)
      .promote(Promote::Product)
      .traits(kComputeBound)
      .doc(
          "Matrix product over the last two axes, plus bias; ta and tb transpose an operand first; batch dimensions "
          "broadcast. Integers give int32 or int64, exact modulo its range.");
}

}  // namespace mge
