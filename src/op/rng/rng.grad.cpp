#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

void vjp_dropout(VjpCtx& c) {
  if (c.wants(0) && c.gy(0)) c.set(0, c.gy(0) * c.out(1));
}

}  // namespace

void register_rng_grad(OpRegistry& r) { r.grad("dropout", vjp_dropout, {.outputs = 0b10}); }

}  // namespace mge
