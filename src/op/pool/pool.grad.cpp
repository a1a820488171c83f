#include "op/pool/pool.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

Attrs same_attrs(const VjpCtx& c) { return Attrs(c.attrs); }

void vjp_max_pool(VjpCtx& c) { c.set(0, c.em->emit1("max_pool2d_bwd", {c.in(0), c.out(0), c.gy()}, same_attrs(c))); }
// Linear in gy and v; where the maxima lie does not change under small steps, so x and y get nothing.
void vjp_max_pool_bwd(VjpCtx& c) {
  if (c.wants(2)) c.set(2, c.em->emit1("max_pool2d_take", {c.in(0), c.in(1), c.gy()}, same_attrs(c)));
}
void vjp_max_pool_take(VjpCtx& c) {
  if (c.wants(2)) c.set(2, c.em->emit1("max_pool2d_bwd", {c.in(0), c.in(1), c.gy()}, same_attrs(c)));
}
void vjp_avg_pool(VjpCtx& c) {
  const auto& at = attrs_as<AvgPoolAttrs>(c.attrs);
  c.set(0,
        c.em->emit1("avg_pool2d_bwd", {c.gy()},
                    make_attrs(AvgPoolBwdAttrs{at.kernel, at.stride, at.pad, at.include_pad, to_ints(c.in_shape(0))})));
}
void vjp_avg_pool_bwd(VjpCtx& c) {
  const auto& at = attrs_as<AvgPoolBwdAttrs>(c.attrs);
  c.set(0, c.em->emit1("avg_pool2d", {c.gy()}, make_attrs(AvgPoolAttrs{at.kernel, at.stride, at.pad, at.include_pad})));
}

}  // namespace

void register_pool_grad(OpRegistry& r) {
  r.grad("max_pool2d", vjp_max_pool, {.inputs = 0b1, .outputs = 0b1});
  r.grad("max_pool2d_bwd", vjp_max_pool_bwd, {.inputs = 0b11});
  r.grad("max_pool2d_take", vjp_max_pool_take, {.inputs = 0b11});
  r.grad("avg_pool2d", vjp_avg_pool);
  r.grad("avg_pool2d_bwd", vjp_avg_pool_bwd);
}

}  // namespace mge
