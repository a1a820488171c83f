#include "op/index/sort.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

Val scattered(const VjpCtx& c, int64_t axis, const Val& gy, const Val& index) {
  const Sizes x = c.in_shape(0);
  return c.em->emit1("gather_bwd", {gy, index}, sized_attrs(GatherBwdAttrs{axis, to_ints(x.now())}, "x_shape", x));
}

// The order does not change under small steps, so sort and topk are gather by a fixed index.
template <class A>
void vjp_ordered(VjpCtx& c) {
  if (!c.gy(0)) return;
  c.set(0, scattered(c, attrs_as<A>(c.attrs).axis, c.gy(0), c.out(1)));
}

void vjp_gather(VjpCtx& c) {
  if (c.wants(0)) c.set(0, scattered(c, attrs_as<GatherAttrs>(c.attrs).axis, c.gy(), c.in(1)));
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
  r.sized_grad("gather_bwd", "x_shape");
  r.sized_grad("topk", "k");
}

}  // namespace mge
