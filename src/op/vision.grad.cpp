#include "op/vision.h"
#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

void vjp_remap(VjpCtx& c) {
  const auto& at = attrs_as<RemapAttrs>(c.attrs);
  if (c.wants(0))
    c.set(0, c.em->emit1("remap_dx", {c.gy(), c.in(1)},
                         make_attrs(RemapDxAttrs{at.border, at.nearest, to_ints(c.in_shape(0))})));
  if (c.wants(1)) c.set(1, c.em->emit1("remap_dmap", {c.in(0), c.in(1), c.gy()}, Attrs(c.attrs)));
}
void vjp_remap_dx(VjpCtx& c) {
  const auto& at = attrs_as<RemapDxAttrs>(c.attrs);
  Attrs same = make_attrs(RemapAttrs{at.border, at.nearest, 0});
  if (c.wants(0)) c.set(0, c.em->emit1("remap", {c.gy(), c.in(1)}, same));
  if (c.wants(1)) c.set(1, c.em->emit1("remap_dmap", {c.gy(), c.in(1), c.in(0)}, same));
}

Ints spatial(const Shape& s) { return Ints(s.begin() + 2, s.end()); }
void vjp_resize(VjpCtx& c) {
  const auto& at = attrs_as<ResizeAttrs>(c.attrs);
  c.set(0, c.em->emit1("resize_bwd", {c.gy()},
                       make_attrs(ResizeBwdAttrs{spatial(c.in_shape(0)), at.mode, at.align_corners})));
}
void vjp_resize_bwd(VjpCtx& c) {
  const auto& at = attrs_as<ResizeBwdAttrs>(c.attrs);
  c.set(0, c.em->emit1("resize", {c.gy()}, make_attrs(ResizeAttrs{spatial(c.in_shape(0)), at.mode, at.align_corners})));
}

// Where a region lies has no gradient, as in every detector that uses these.
void vjp_roi_align(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("roi_align_bwd", {c.in(0), c.in(1), c.gy()}, Attrs(c.attrs)));
}
void vjp_roi_pooling(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("roi_pooling_bwd", {c.in(0), c.in(1), c.gy()}, Attrs(c.attrs)));
}

}  // namespace

void register_vision_grad(OpRegistry& r) {
  r.grad("remap", vjp_remap, {.inputs = 0b11});
  r.grad("remap_dx", vjp_remap_dx, {.inputs = 0b11});
  r.grad("resize", vjp_resize);
  r.grad("resize_bwd", vjp_resize_bwd);
  r.grad("roi_align", vjp_roi_align, {.inputs = 0b11});
  r.grad("roi_pooling", vjp_roi_pooling, {.inputs = 0b11});
}

}  // namespace mge
