#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

void vjp_softmax(VjpCtx& c) { c.set(0, c.em->emit1("softmax_bwd", {c.out(), c.gy()}, Attrs(c.attrs))); }
void vjp_logsoftmax(VjpCtx& c) { c.set(0, c.em->emit1("logsoftmax_bwd", {c.out(), c.gy()}, Attrs(c.attrs))); }

}  // namespace

void register_softmax_grad(OpRegistry& r) {
  r.grad("softmax", vjp_softmax, {.outputs = 0b1});
  r.grad("logsoftmax", vjp_logsoftmax, {.outputs = 0b1});
}

}  // namespace mge
