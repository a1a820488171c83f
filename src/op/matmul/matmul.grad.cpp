#include "op/matmul/matmul.h"
#include "op/emitter.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// [.., K] as [rows, K]
Val flat(const Val& x) {
  return x.rank() == 2 ? x : x.em->emit1("flatten", {x}, make_attrs(RangeAttrs{0, x.rank() - 2}));
}

// y = op(a) op(b) + bias. Each adjoint is one matmul, written so that no operand is transposed in memory.
void vjp_matmul(VjpCtx& c) {
  const auto& at = attrs_as<MatmulAttrs>(c.attrs);
  const Val &a = c.in(0), &b = c.in(1), &gy = c.gy();
  if (c.n_in() == 3 && c.wants(2)) c.set(2, unbroadcast(gy, c.in_shape(2)));
  if (c.wants(0)) {
    Val g = at.ta ? matmul(b, gy, at.tb, true) : matmul(gy, b, false, !at.tb);
    c.set(0, unbroadcast(g, c.in_shape(0)));
  }
  if (!c.wants(1)) return;
  // A linear layer on [.., K]: one product over all rows instead of one per batch and a sum.
  if (c.in_shape(1).rank == 2 && c.in_shape(0).rank > 2 && !at.ta) {
    c.set(1, at.tb ? matmul(flat(gy), flat(a), true, false) : matmul(flat(a), flat(gy), true, false));
    return;
  }
  Val g = at.tb ? matmul(gy, a, true, at.ta) : matmul(a, gy, !at.ta, false);
  c.set(1, unbroadcast(g, c.in_shape(1)));
}

}  // namespace

void register_matmul_grad(OpRegistry& r) {
  r.grad("matmul", vjp_matmul, {.inputs = 0b11, .read_for = Saves::ReadFor::Other});
}

}  // namespace mge
