#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

// The gradient of a loss in z is (its gradient in the real part) + i * (that in the imaginary part).
void vjp_complex(VjpCtx& c) {
  if (c.wants(0)) c.set(0, unary("real", c.gy()));
  if (c.wants(1)) c.set(1, unary("imag", c.gy()));
}
void vjp_real(VjpCtx& c) { c.set(0, binary("complex", c.gy(), zeros_like(c.gy()))); }
void vjp_imag(VjpCtx& c) { c.set(0, binary("complex", zeros_like(c.gy()), c.gy())); }

}  // namespace

void register_complex_grad(OpRegistry& r) {
  r.grad("complex", vjp_complex);
  r.grad("real", vjp_real);
  r.grad("imag", vjp_imag);
}

}  // namespace mge
