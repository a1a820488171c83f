#include "op/vision/vision.h"
#include "op/emitter.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// Nearest pixels do not change with the map.
Val by_map(VjpCtx& c, const Val& x, const Val& gy, const Attrs& at, bool nearest) {
  return nearest ? zeros_like(c.in(1)) : c.em->emit1("remap_dmap", {x, c.in(1), gy}, at);
}
void vjp_remap(VjpCtx& c) {
  const auto& at = attrs_as<RemapAttrs>(c.attrs);
  if (c.wants(0))
    c.set(0, c.em->emit1("remap_dx", {c.gy(), c.in(1)},
                         sized_attrs(RemapDxAttrs{at.border, at.nearest, to_ints(c.in_shape(0).now())}, "x_shape",
                                     c.in_shape(0))));
  if (c.wants(1)) c.set(1, by_map(c, c.in(0), c.gy(), Attrs(c.attrs), at.nearest));
}
void vjp_remap_dx(VjpCtx& c) {
  const auto& at = attrs_as<RemapDxAttrs>(c.attrs);
  Attrs same = make_attrs(RemapAttrs{at.border, at.nearest, 0});
  if (c.wants(0)) c.set(0, c.em->emit1("remap", {c.gy(), c.in(1)}, same));
  if (c.wants(1)) c.set(1, by_map(c, c.gy(), c.in(0), same, at.nearest));
}

// Attributes whose `field` is the sizes of an image.
template <class A>
Attrs spatial(A at, Ints A::*field, std::string_view name, const Sizes& s) {
  at.*field = Ints(s.now().begin() + 2, s.now().end());
  if (!s.operand()) return make_attrs(std::move(at));
  Val last = s.operand().em->emit1("slice", {s.operand()}, make_attrs(SliceAttrs{{0}, {2}, {s.rank}, {1}}));
  return make_attrs(std::move(at), {{field_index<A>(name), SizeOperand::kWhole, last.p}});
}
void vjp_resize(VjpCtx& c) {
  const auto& at = attrs_as<ResizeAttrs>(c.attrs);
  c.set(0, c.em->emit1("resize_bwd", {c.gy()},
                       spatial(ResizeBwdAttrs{{}, at.mode, at.align_corners}, &ResizeBwdAttrs::x_size, "x_size",
                               c.in_shape(0))));
}
void vjp_resize_bwd(VjpCtx& c) {
  const auto& at = attrs_as<ResizeBwdAttrs>(c.attrs);
  c.set(0, c.em->emit1("resize", {c.gy()},
                       spatial(ResizeAttrs{{}, at.mode, at.align_corners}, &ResizeAttrs::size, "size", c.in_shape(0))));
}

// Where a region lies has no gradient, as in every detector that uses these.
void vjp_roi_align(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("roi_align_bwd", {c.in(0), c.in(1), c.gy()}, Attrs(c.attrs)));
}
void vjp_roi_pooling(VjpCtx& c) {
  if (c.wants(0)) c.set(0, c.em->emit1("roi_pooling_bwd", {c.in(0), c.in(1), c.gy()}, Attrs(c.attrs)));
}

// The mean of a region is linear in x, so the adjoint of its adjoint is itself.
template <class A>
void vjp_regions_bwd(VjpCtx& c, const char* op) {
  if (!c.wants(2)) return;  // x only says which pixels are largest
  MGE_CHECK(!attrs_as<A>(c.attrs).max, NotImplemented,
            "{}: the largest of a region has no gradient of second order. Use the mean, or detach the gradient.", op);
  c.set(2, c.em->emit1(op, {c.gy(), c.in(1)}, Attrs(c.attrs)));
}

}  // namespace

void register_vision_grad(OpRegistry& r) {
  r.grad("remap", vjp_remap, {.inputs = 0b11});
  r.grad("remap_dx", vjp_remap_dx, {.inputs = 0b11});
  r.grad("resize", vjp_resize);
  r.grad("resize_bwd", vjp_resize_bwd);
  r.sized_grad("remap_dx", "x_shape");
  r.sized_grad("resize", "size");
  r.sized_grad("resize_bwd", "x_size");
  r.grad("roi_align", vjp_roi_align, {.inputs = 0b11});
  r.grad("roi_pooling", vjp_roi_pooling, {.inputs = 0b11});
  r.grad("roi_align_bwd", [](VjpCtx& c) { vjp_regions_bwd<RoiAlignAttrs>(c, "roi_align"); }, {.inputs = 0b10});
  r.grad("roi_pooling_bwd", [](VjpCtx& c) { vjp_regions_bwd<RoiPoolAttrs>(c, "roi_pooling"); }, {.inputs = 0b10});
}

}  // namespace mge
