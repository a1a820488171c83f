// The gradient of a collective is one, by the same group: every rank whose result has a gradient must call backward, as
// every rank had to call forward.
#include "op/dist/collective.h"
#include "op/emitter.h"

namespace mge {
namespace {

const CollectiveAttrs& attrs(const VjpCtx& c) { return attrs_as<CollectiveAttrs>(c.attrs); }
Val emit(const VjpCtx& c, const char* op, const Val& x) {
  CollectiveAttrs a = attrs(c);
  a.mode = "sum";
  return c.em->emit1(op, {x}, make_attrs(a));
}
bool is_root(const VjpCtx& c) { return attrs(c).rank == attrs(c).root; }
void only_sums(const VjpCtx& c) {
  MGE_CHECK(attrs(c).mode == "sum", NotImplemented,
            "{}: mode=\"{}\" has no gradient here. Use mode=\"sum\", or dist_all_gather and a reduction.", c.op->name,
            attrs(c).mode);
}

void vjp_all_reduce(VjpCtx& c) {
  const CollectiveAttrs& a = attrs(c);
  MGE_CHECK(a.mode != "prod", NotImplemented,
            "dist_all_reduce: mode=\"prod\" has no gradient. Use dist_all_gather and a product.");
  Val g = emit(c, "dist_all_reduce", c.gy());
  if (a.mode == "sum") return c.set(0, g);
  c.set(0, g * cast(binary("eq", c.in(0), c.out()), g.dtype()));  // all that hold it
}
// A rank other than the root has nothing in hand: what it gives only has the right shape.
Val in_place_of(const VjpCtx& c, const Val& g) { return is_root(c) ? g : zeros(g, c.in_shape(0)); }

void vjp_reduce(VjpCtx& c) {
  only_sums(c);
  c.set(0, emit(c, "dist_broadcast", in_place_of(c, c.gy())));
}
void vjp_broadcast(VjpCtx& c) {
  Val g = emit(c, "dist_reduce", c.gy());
  c.set(0, is_root(c) ? g : zeros(g, c.in_shape(0)));
}
void vjp_all_gather(VjpCtx& c) { c.set(0, emit(c, "dist_reduce_scatter", c.gy())); }
void vjp_reduce_scatter(VjpCtx& c) {
  only_sums(c);
  c.set(0, emit(c, "dist_all_gather", c.gy()));
}
void vjp_gather(VjpCtx& c) {
  if (is_root(c)) return c.set(0, emit(c, "dist_scatter", c.gy()));
  Shape joined = c.in_shape(0);
  joined[0] *= attrs(c).size;
  c.set(0, emit(c, "dist_scatter", zeros(c.gy(), joined)));
}
void vjp_scatter(VjpCtx& c) {
  Val g = emit(c, "dist_gather", c.gy());
  c.set(0, is_root(c) ? g : zeros(g, c.in_shape(0)));
}
void vjp_all_to_all(VjpCtx& c) { c.set(0, emit(c, "dist_all_to_all", c.gy())); }

// What came from a peer sends its gradient back there, and the sender receives it.
void vjp_send(VjpCtx& c) {
  PeerAttrs a = attrs_as<PeerAttrs>(c.attrs);
  const Sizes shape = c.in_shape(0);
  a.shape = to_ints(shape.now());
  a.dtype = c.in_metas[0].dtype;
  c.set(0, c.em->emit1("dist_recv", {}, sized_attrs(std::move(a), "shape", shape)));
}
void vjp_recv(VjpCtx& c) {
  Val sent = c.em->emit1("dist_send", {c.gy()}, make_attrs(PeerAttrs(attrs_as<PeerAttrs>(c.attrs))));
  if (c.wants(0)) c.set(0, zeros(cast(sent, c.in_metas[0].dtype), c.in_shape(0)));
}

}  // namespace

void register_collective_grads(OpRegistry& r) {
  r.grad("dist_all_reduce", vjp_all_reduce, {.inputs = 1, .outputs = 1}, [](const AttrsBase* a) {
    return attrs_as<CollectiveAttrs>(a).mode == "sum" ? Saves{} : Saves{.inputs = 1, .outputs = 1};
  });
  r.grad("dist_reduce", vjp_reduce);
  r.grad("dist_broadcast", vjp_broadcast);
  r.grad("dist_all_gather", vjp_all_gather);
  r.grad("dist_reduce_scatter", vjp_reduce_scatter);
  r.grad("dist_gather", vjp_gather);
  r.grad("dist_scatter", vjp_scatter);
  r.grad("dist_all_to_all", vjp_all_to_all);
  r.grad("dist_send", vjp_send);
  r.grad("dist_recv", vjp_recv);
}

}  // namespace mge
