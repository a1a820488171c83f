#include "op/norm/batch_norm.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

Val sum_or(const Val& a, const Val& b) { return !a ? b : !b ? a : a + b; }

// The statistics are outputs too: second order reaches them through the decomposition of batch_norm_bwd.
Val through_stats(VjpCtx& c) {
  const Val &x = c.in(0), &mean = c.out(1), &rstd = c.out(3);
  const double n = static_cast<double>(batch_norm_geom(c.in_shape(0)).count());
  Val gvar = c.gy(2);
  if (c.gy(3)) gvar = sum_or(gvar, c.gy(3) * (rstd * rstd * rstd) * -0.5);
  Val g;
  if (gvar) g = (x - mean) * (gvar * (2 / n));
  if (c.gy(1)) g = sum_or(g, c.gy(1) / n);
  return g;
}

void vjp_batch_norm_train(VjpCtx& c) {
  Val gx;
  if (c.gy(0)) {
    static const OpDef& bwd = OpRegistry::global().get("batch_norm_bwd");
    Val in[] = {c.in(0), c.gy(0), c.in(1), c.out(1), c.out(3)}, out[3];
    c.em->emit(bwd, nullptr, in, out);
    gx = out[0];
    if (c.wants(1)) c.set(1, out[1]);
    if (c.wants(2)) c.set(2, reshape(out[2], c.in_shape(2)));
  }
  if (!c.wants(0)) return;
  if (c.gy(1) || c.gy(2) || c.gy(3)) gx = cast(sum_or(gx, through_stats(c)), c.in(0).dtype());
  if (gx) c.set(0, broadcast_to(gx, c.in_shape(0)));
}

void vjp_batch_norm_infer(VjpCtx& c) {
  const Shape& xs = c.in_shape(0).now();  // its rank; how many channels there are the weight knows
  Shape stat = Shape::filled(xs.rank, 1);
  stat[1] = c.in_shape(1).fixed().numel();
  Ints axes = batch_norm_axes(xs);
  const Val& gy = c.gy();
  Val w = reshape(c.in(1), stat), mean = reshape(c.in(3), stat), var = reshape(c.in(4), stat);
  Val rstd = 1.0 / unary("sqrt", var + attrs_as<BatchNormAttrs>(c.attrs).eps);
  if (c.wants(0)) c.set(0, gy * (w * rstd));
  if (!(c.wants(1) || c.wants(2) || c.wants(3) || c.wants(4))) return;
  Val sum = reduce(gy, "sum", axes, true);
  if (c.wants(2)) c.set(2, reshape(sum, c.in_shape(2)));
  if (c.wants(3)) c.set(3, reshape(-(w * rstd * sum), c.in_shape(3)));
  if (!(c.wants(1) || c.wants(4))) return;
  Val dot = reduce(gy * (c.in(0) - mean), "sum", axes, true);
  if (c.wants(1)) c.set(1, reshape(dot * rstd, c.in_shape(1)));
  if (c.wants(4)) c.set(4, reshape(dot * w * (rstd * rstd * rstd) * -0.5, c.in_shape(4)));
}

}  // namespace

void register_batch_norm_grad(OpRegistry& r) {
  r.grad("batch_norm_train", vjp_batch_norm_train, {.inputs = 0b011, .outputs = 0b1010});
  r.grad("batch_norm_infer", vjp_batch_norm_infer, {.inputs = 0b11011});
}

}  // namespace mge
