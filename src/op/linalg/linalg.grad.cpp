#include "op/linalg/linalg.h"
#include "op/emitter.h"
#include "op/nn.h"
#include "op/shape/copy_to.h"

namespace mge {
namespace {

// d(x^-1) = -x^-1 dx x^-1
void vjp_matinv(VjpCtx& c) { c.set(0, -matmul(matmul(c.out(), c.gy(), true, false), c.out(), false, true)); }

// An op without inputs makes its value on the default device.
Val eye_like(const Val& x, int64_t n) {
  Val y = x.em->emit1("eye", {}, make_attrs(EyeAttrs{n, n, 0, x.dtype()}));
  const CompNode *here = x.meta().cn, *made = y.meta().cn;
  if (!here || !made || here->same_as(*made)) return y;
  return x.em->emit1("copy_to", {y}, make_attrs(CopyToAttrs{here->logical, false}));
}

// x [.., k] as a row [.., 1, k] or a column [.., k, 1] of matrices.
Val row(const Val& x) {
  Shape s = x.shape();
  s.insert(s.rank - 1, 1);
  return reshape(x, s);
}
Val column(const Val& x) {
  Shape s = x.shape();
  s.push_back(1);
  return reshape(x, s);
}
Val skew(const Val& x) {
  Ints perm;
  int r = x.shape().rank;
  for (int i = 0; i < r; ++i) perm.push_back(i < r - 2 ? i : 2 * r - 3 - i);
  return x - transpose(x, perm);
}

// With w = u^T gu and z = v^T gv:  gx = u (skew(w)/e s + s skew(z)/e + diag(gs)) vh, where e_ij = s_j^2 - s_i^2,
// plus what lies outside the spaces of u and v:  (1 - u u^T) gu s^-1 vh + u s^-1 gvh (1 - v vh).
void vjp_svd(VjpCtx& c) {
  const Val &s = c.out(0), &u = c.out(1), &vh = c.out(2), &gs = c.gy(0), &gu = c.gy(1), &gvh = c.gy(2);
  const Shape& x = c.in_shape(0);
  int64_t m = x[x.rank - 2], n = x[x.rank - 1], k = s.shape().back();
  bool full = attrs_as<SvdAttrs>(c.attrs).full_matrices;
  MGE_CHECK(!full || m == n || (!gu && !gvh), NotImplemented,
            "svd: the extra columns of full_matrices=True are not unique, so u and vh of x {} have no gradient. "
            "Use full_matrices=False.",
            x.str());
  if (full && m != n) {  // only s has a gradient, but u and vh hold more than its k vectors
    Val thin[3];
    c.em->emit(OpRegistry::global().get("svd"), make_attrs(SvdAttrs{false}), {&c.in(0), 1}, thin);
    c.set(0, matmul(thin[1] * row(gs), thin[2], false, false));
    return;
  }
  Val sum = matmul(u * row(gs), vh, false, false);
  auto add = [&sum](const Val& v) { sum = sum + v; };
  if (gu || gvh) {
    Val eye = eye_like(s, k), square = s * s;
    Val e = row(square) - column(square) + eye;  // the diagonal divides zeros
    if (gu) {
      Val w = matmul(u, gu, true, false);
      add(matmul(u, matmul(skew(w) / e * row(s), vh, false, false), false, false));
      if (m > k) add(matmul((gu - matmul(u, w, false, false)) / row(s), vh, false, false));
    }
    if (gvh) {
      Val z = matmul(vh, gvh, false, true);  // v^T gv
      add(matmul(u, matmul(column(s) * (skew(z) / e), vh, false, false), false, false));
      if (n > k) {
        Val inside = matmul(gvh, vh, false, true);
        add(matmul(u / row(s), gvh - matmul(inside, vh, false, false), false, false));
      }
    }
  }
  c.set(0, sum);
}

}  // namespace

void register_linalg_grad(OpRegistry& r) {
  r.grad("matinv", vjp_matinv, {.outputs = 0b1});
  r.grad("svd", vjp_svd, {.inputs = 0b1, .outputs = 0b111});
}

}  // namespace mge
