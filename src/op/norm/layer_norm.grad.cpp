#include "op/norm/layer_norm.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

Val sum_or(const Val& a, const Val& b) { return !a ? b : !b ? a : a + b; }

void vjp_layer_norm(VjpCtx& c) {
  const auto& at = attrs_as<LayerNormAttrs>(c.attrs);
  const Val &mean = c.out(1), &rstd = c.out(2);
  Val gx;
  if (c.gy(0)) {
    static const OpDef& bwd = OpRegistry::global().get("layer_norm_bwd");
    SmallVec<Val, 5> in{c.in(0), c.gy(0), mean, rstd};
    if (c.n_in() == 3) in.push_back(c.in(1));
    Val out[3];
    c.em->emit(bwd, make_attrs(LayerNormBwdAttrs{at.n_axes}), {in.data(), in.size()}, out);
    gx = out[0];
    for (size_t i : {1, 2})
      if (c.wants(i)) c.set(i, out[i]);
  }
  if (!c.wants(0)) return;
  if (!c.gy(1) && !c.gy(2)) {
    if (gx) c.set(0, broadcast_to(gx, c.in_shape(0)));
    return;
  }
  double n = static_cast<double>(layer_norm_geom(c.in_shape(0), at.n_axes).size);
  if (c.gy(2)) gx = sum_or(gx, (c.in(0) - mean) * (c.gy(2) * (rstd * rstd * rstd) * (-1 / n)));
  if (c.gy(1)) gx = sum_or(gx, c.gy(1) / n);
  if (gx) c.set(0, broadcast_to(gx, c.in_shape(0)));
}

}  // namespace

void register_layer_norm_grad(OpRegistry& r) {
  r.grad("layer_norm", vjp_layer_norm, {.inputs = 0b011, .outputs = 0b110});
}

}  // namespace mge
