#include "op/loss/loss.h"
#include "op/emitter.h"
#include "op/loss/softmax.h"
#include "op/nn.h"

namespace mge {
namespace {

// p is an output too: second order reaches it through the decomposition of softmax_xent_bwd.
void vjp_softmax_xent(VjpCtx& c) {
  Val g;
  if (c.gy(0)) g = c.em->emit1("softmax_xent_bwd", {c.out(1), c.in(1), c.gy(0)}, Attrs(c.attrs));
  if (c.gy(1)) {
    Val gp =
        c.em->emit1("softmax_bwd", {c.out(1), c.gy(1)}, make_attrs(SoftmaxAttrs{attrs_as<XentAttrs>(c.attrs).axis}));
    g = g ? g + gp : gp;
  }
  c.set(0, g);
}

}  // namespace

void register_loss_grad(OpRegistry& r) { r.grad("softmax_xent", vjp_softmax_xent, {.inputs = 0b10, .outputs = 0b10}); }

}  // namespace mge
