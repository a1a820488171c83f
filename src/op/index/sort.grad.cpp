#include "op/index/sort.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

// The order does not change under small steps, so sort and topk are gather by a fixed index.
template <class A>
void vjp_ordered(VjpCtx& c) {
  if (!c.gy(0)) return;
  GatherBwdAttrs at{attrs_as<A>(c.attrs).axis, to_ints(c.in_shape(0))};
  c.set(0, c.em->emit1("gather_bwd", {c.gy(0), c.out(1)}, make_attrs(std::move(at))));
}

void vjp_gather(VjpCtx& c) {
  GatherBwdAttrs at{attrs_as<GatherAttrs>(c.attrs).axis, to_ints(c.in_shape(0))};
  if (c.wants(0)) c.set(0, c.em->emit1("gather_bwd", {c.gy(), c.in(1)}, make_attrs(std::move(at))));
}
void vjp_gather_bwd(VjpCtx& c) {
  GatherAttrs at{attrs_as<GatherBwdAttrs>(c.attrs).axis};
  if (c.wants(0)) c.set(0, c.em->emit1("gather", {c.gy(), c.in(1)}, make_attrs(at)));
}

}  // namespace

void register_sort_grad(OpRegistry& r) {
  r.grad("sort", vjp_ordered<SortAttrs>, {.outputs = 0b10});
  r.grad("topk", vjp_ordered<TopkAttrs>, {.outputs = 0b10});
  r.grad("gather", vjp_gather, {.inputs = 0b10});
  r.grad("gather_bwd", vjp_gather_bwd, {.inputs = 0b10});
}

}  // namespace mge
