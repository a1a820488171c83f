#include "op/index/multi_index.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

// Emits `op` on `heads` and the saved indices, which start at input `first`.
Val with_indices(VjpCtx& c, const char* op, std::initializer_list<Val> heads, size_t first) {
  SmallVec<Val, 8> in(heads.begin(), heads.end());
  for (size_t i = first; i < c.n_in(); ++i) in.push_back(c.in(i));
  Val out;
  c.em->emit(OpRegistry::global().get(op), Attrs(c.attrs), {in.data(), in.size()}, {&out, 1});
  return out;
}

void vjp_get(VjpCtx& c) {
  if (c.wants(0)) c.set(0, with_indices(c, "index_incr", {zeros(c.gy(), c.in_shape(0)), c.gy()}, 1));
}
void vjp_get_last(VjpCtx& c) {
  if (c.wants(0)) c.set(0, with_indices(c, "index_set", {zeros(c.gy(), c.in_shape(0)), c.gy()}, 1));
}
void vjp_set(VjpCtx& c) {
  if (c.wants(0)) c.set(0, with_indices(c, "index_set", {c.gy(), zeros(c.gy(), c.in_shape(1))}, 2));
  if (c.wants(1)) c.set(1, with_indices(c, "index_get_last", {c.gy()}, 2));
}
void vjp_incr(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.gy());
  if (c.wants(1)) c.set(1, with_indices(c, "index_get", {c.gy()}, 2));
}

}  // namespace

void register_multi_index_grad(OpRegistry& r) {
  r.grad("index_get", vjp_get, {.inputs = ~0b1u});
  r.grad("index_get_last", vjp_get_last, {.inputs = ~0b1u});
  r.grad("index_set", vjp_set, {.inputs = ~0b11u});
  r.grad("index_incr", vjp_incr, {.inputs = ~0b11u});
}

}  // namespace mge
