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
const int kXShape = field_index<AvgPoolBwdAttrs>("x_shape");

void vjp_avg_pool(VjpCtx& c) {
  const auto& at = attrs_as<AvgPoolAttrs>(c.attrs);
  const Sizes x = c.in_shape(0);
  AvgPoolBwdAttrs bwd{at.kernel, at.stride, at.pad, at.include_pad, to_ints(x.now())};
  std::vector<SizeOperand> sizes(c.attrs->sizes().begin(), c.attrs->sizes().end());  // the same fields come first
  if (x.operand()) sizes.push_back({kXShape, SizeOperand::kWhole, x.operand().p});
  c.set(0, c.em->emit1("avg_pool2d_bwd", {c.gy()}, make_attrs(std::move(bwd), std::move(sizes))));
}
void vjp_avg_pool_bwd(VjpCtx& c) {
  const auto& at = attrs_as<AvgPoolBwdAttrs>(c.attrs);
  std::vector<SizeOperand> sizes;
  for (auto& s : c.attrs->sizes())
    if (s.field != kXShape) sizes.push_back(s);
  AvgPoolAttrs fwd{at.kernel, at.stride, at.pad, at.include_pad};
  c.set(0, c.em->emit1("avg_pool2d", {c.gy()}, make_attrs(std::move(fwd), std::move(sizes))));
}

}  // namespace

void register_pool_grad(OpRegistry& r) {
  r.grad("max_pool2d", vjp_max_pool, {.inputs = 0b1, .outputs = 0b1});
  r.grad("max_pool2d_bwd", vjp_max_pool_bwd, {.inputs = 0b11});
  r.grad("max_pool2d_take", vjp_max_pool_take, {.inputs = 0b11});
  r.grad("avg_pool2d", vjp_avg_pool);
  r.grad("avg_pool2d_bwd", vjp_avg_pool_bwd);
  for (const char* op : {"max_pool2d", "max_pool2d_bwd", "max_pool2d_take", "avg_pool2d", "avg_pool2d_bwd"})
    r.sized_grad(op);
}

}  // namespace mge
