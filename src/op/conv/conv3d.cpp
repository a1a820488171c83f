#include "op/conv/conv3d.h"

#include "op/compose.h"
#include "op/conv/conv2d.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// conv3d is conv2d over N * (output depth) images whose channels are those of the kd depths under a tap: the taps in
// depth become channels, [N,C,D,H,W] -> [N*OD, C*kd, H, W], and a weight [O,C/g,kd,kh,kw] is [O,C/g*kd,kh,kw].
Val unfolded(const ConvGeom& g, const Val& x) {
  Val room = padded(x, 2, g.pd, g.pd, 0);
  std::vector<Val> taps;
  for (int64_t k = 0; k < g.kd; ++k) {
    int64_t first = k * g.dd;
    Val tap = slice_axis(room, 2, first, first + (g.od - 1) * g.sd + 1, g.sd);
    taps.push_back(reshape(tap, Shape{g.n, g.c, 1, g.od, g.h, g.w}));
  }
  Val all = transpose(concat(taps, 2), {0, 3, 1, 2, 4, 5});
  return reshape(all, Shape{g.n * g.od, g.c * g.kd, g.h, g.w});
}
// The adjoint of unfolded.
Val folded(const ConvGeom& g, const Val& images) {
  Val all = reshape(images, Shape{g.n, g.od, g.c, g.kd, g.h, g.w});
  all = transpose(all, {0, 2, 3, 1, 4, 5});
  Val sum, none = filled(images, 0, images.dtype(), Shape{g.n, g.c, g.d + 2 * g.pd, g.h, g.w});
  for (int64_t k = 0; k < g.kd; ++k) {
    int64_t first = k * g.dd;
    SliceAttrs to{{2}, {first}, {first + (g.od - 1) * g.sd + 1}, {g.sd}};
    Val part = none.em->emit1("set_slice", {none, element(all, 2, k)}, make_attrs(std::move(to)));
    sum = sum ? sum + part : part;
  }
  return slice_axis(sum, 2, g.pd, g.pd + g.d);
}
// [N,O,OD,OH,OW] <-> [N*OD,O,OH,OW]
Val as_images(const ConvGeom& g, const Val& y) {
  return reshape(transpose(y, {0, 2, 1, 3, 4}), Shape{g.n * g.od, g.o, g.oh, g.ow});
}
Val as_volumes(const ConvGeom& g, const Val& y) {
  return transpose(reshape(y, Shape{g.n, g.od, g.o, g.oh, g.ow}), {0, 2, 1, 3, 4});
}
Shape flat_weight(const ConvGeom& g) { return {g.o, g.c / g.groups * g.kd, g.kh, g.kw}; }
// Its attributes; the depth is gone.
Conv2dAttrs flat(const ConvGeom& g) { return {{g.sh, g.sw}, {g.ph, g.pw}, {g.dh, g.dw}, g.groups}; }

void decompose_conv3d(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  ConvGeom g = conv_geom(attrs_as<Conv3dAttrs>(attrs), in[0].shape(), in[1].shape());
  Val y = em.emit1("conv2d", {unfolded(g, in[0]), reshape(in[1], flat_weight(g))}, make_attrs(flat(g)));
  out[0] = as_volumes(g, y);
}
void decompose_conv3d_dx(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv3dDxAttrs>(attrs);
  ConvGeom g = conv_geom(at, to_shape(at.x_shape), in[1].shape());
  Conv2dDxAttrs images{flat(g), {g.n * g.od, g.c * g.kd, g.h, g.w}};
  Val gx = em.emit1("conv2d_dx", {as_images(g, wide(in[0])), reshape(wide(in[1]), flat_weight(g))},
                    make_attrs(std::move(images)));
  out[0] = cast(folded(g, gx), in[0].dtype());
}
void decompose_conv3d_dw(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv3dDwAttrs>(attrs);
  Shape w = to_shape(at.w_shape);
  ConvGeom g = conv_geom(at, in[0].shape(), w);
  Conv2dDwAttrs images{flat(g), to_ints(flat_weight(g))};
  out[0] = reshape(em.emit1("conv2d_dw", {unfolded(g, in[0]), as_images(g, in[1])}, make_attrs(std::move(images))), w);
}

}  // namespace

void register_conv3d(OpRegistry& r) {
  conv_op<Conv3dAttrs>(r)
      .in("x", "weight")
      .out("y")
      .decompose(decompose_conv3d)
      .doc(
          "Cross-correlation of x [N,C,D,H,W] with weight [O,C/groups,kd,kh,kw] or "
          "[groups,O/groups,C/groups,kd,kh,kw].");
  conv_op<Conv3dDxAttrs>(r)
      .in("gy", "weight")
      .out("gx")
      .decompose(decompose_conv3d_dx)
      .doc("Adjoint of conv3d in x: the transposed convolution that gives a result of shape x_shape.");
  conv_op<Conv3dDwAttrs>(r)
      .in("x", "gy")
      .out("gw")
      .decompose(decompose_conv3d_dw)
      .doc("Adjoint of conv3d in its weight, which has shape w_shape.");
}

}  // namespace mge
