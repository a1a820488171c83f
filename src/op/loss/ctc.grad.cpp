#include "op/loss/ctc.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

void vjp_ctc(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("ctc_loss_bwd", {c.in(0), c.in(1), c.in(2), c.in(3), c.gy()}, Attrs(c.attrs)));
}

}  // namespace

void register_ctc_grad(OpRegistry& r) { r.grad("ctc_loss", vjp_ctc, {.inputs = 0b1111}); }

}  // namespace mge
