#include "op/conv/conv3d.h"

#include "op/compose.h"
#include "op/conv/conv2d.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

void check_triple(const InferCtx& c, const char* attr, const Ints& v, int64_t least) {
  bool ok = v.size() == 3;
  for (int64_t i : v) ok = ok && i >= least && i < int64_t{1} << 31;
  MGE_CHECK(ok, Value, "{}: {} takes three ints of at least {}; got {}.", c.op->name, attr, least, print_attr(v));
}

// Checks x against w and returns the shape of y.
template <class A>
Shape output_shape(const InferCtx& c, const A& at, const Shape& x, const Shape& w) {
  const std::string& op = c.op->name;
  MGE_CHECK(at.groups >= 1, Value, "{}: groups must be at least 1; got {}.", op, at.groups);
  check_triple(c, "stride", at.stride, 1);
  check_triple(c, "pad", at.pad, 0);
  check_triple(c, "dilate", at.dilate, 1);
  MGE_CHECK(x.rank == 5, Value, "{}: input must be [N,C,D,H,W]; got {}.", op, x.str());
  MGE_CHECK(w.rank == 5 || w.rank == 6, Value,
            "{}: weight must be [O,C/groups,kd,kh,kw] or [groups,O/groups,C/groups,kd,kh,kw]; got {}.", op, w.str());
  bool six = w.rank == 6;
  MGE_CHECK(!six || w[0] == at.groups, Value, "{}: weight {} is laid out for {} groups but groups is {}.", op, w.str(),
            w[0], at.groups);
  int64_t o = six ? w[0] * w[1] : w[0], cg = w[w.rank - 4];
  MGE_CHECK(x[1] == cg * at.groups, Value,
            "{}: input has {} channels but weight expects {} (weight.shape[{}] {} x groups {}); input {}, weight {}.",
            op, x[1], cg * at.groups, w.rank - 4, cg, at.groups, x.str(), w.str());
  MGE_CHECK(o % at.groups == 0, Value, "{}: {} output channels cannot be split into {} groups; weight {}.", op, o,
            at.groups, w.str());
  Shape y{x[0], o};
  for (int i = 0; i < 3; ++i) {
    auto k = static_cast<size_t>(i);
    int64_t size = w[w.rank - 3 + i], reach = at.dilate[k] * (size - 1) + 1, room = x[2 + i] + 2 * at.pad[k];
    MGE_CHECK(size >= 1, Value, "{}: the kernel is empty; weight {}.", op, w.str());
    MGE_CHECK(reach <= room, Value,
              "{}: kernel size {} (dilated {}) is larger than the padded input {} on axis {}; input {}, weight {}.", op,
              size, reach, room, 2 + i, x.str(), w.str());
    y.push_back((room - reach) / at.stride[k] + 1);
  }
  return y;
}

void infer_conv3d(InferCtx& c) {
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  Shape y = output_shape(c, attrs_as<Conv3dAttrs>(c.attrs), c.shape(0), c.shape(1));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = y;
}

void infer_conv3d_dx(InferCtx& c) {
  const auto& at = attrs_as<Conv3dDxAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) nn::check_float(c, i);
  Shape x = to_shape(at.x_shape);
  nn::check_shape_is(c, 0, output_shape(c, at, x, c.shape(1)), format("(the output of conv3d on x_shape {})", x.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}

void infer_conv3d_dw(InferCtx& c) {
  const auto& at = attrs_as<Conv3dDwAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) nn::check_float(c, i);
  Shape w = to_shape(at.w_shape);
  nn::check_shape_is(c, 1, output_shape(c, at, c.shape(0), w),
                     format("(the output of conv3d on x {} and w_shape {})", c.shape(0).str(), w.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = w;
}

double cost_conv3d(const InferCtx& c) {
  return conv3d_geom(attrs_as<Conv3dAttrs>(c.attrs), c.shape(0), c.shape(1)).flops();
}
double cost_conv3d_dx(const InferCtx& c) {
  const auto& at = attrs_as<Conv3dDxAttrs>(c.attrs);
  return conv3d_geom(at, to_shape(at.x_shape), c.shape(1)).flops();
}
double cost_conv3d_dw(const InferCtx& c) {
  const auto& at = attrs_as<Conv3dDwAttrs>(c.attrs);
  return conv3d_geom(at, c.shape(0), to_shape(at.w_shape)).flops();
}

// conv3d is conv2d over N * (output depth) images whose channels are those of the kd depths under a tap: the taps in
// depth become channels, [N,C,D,H,W] -> [N*OD, C*kd, H, W], and a weight [O,C/g,kd,kh,kw] is [O,C/g*kd,kh,kw].
Val unfolded(const Conv3dGeom& g, const Val& x) {
  Val room = padded(x, 2, g.pad[0], g.pad[0], 0);
  std::vector<Val> taps;
  for (int64_t k = 0; k < g.kernel[0]; ++k) {
    int64_t first = k * g.dilate[0];
    Val tap = slice_axis(room, 2, first, first + (g.out[0] - 1) * g.stride[0] + 1, g.stride[0]);
    taps.push_back(reshape(tap, Shape{g.n, g.c, 1, g.out[0], g.in[1], g.in[2]}));
  }
  Val all = transpose(concat(taps, 2), {0, 3, 1, 2, 4, 5});
  return reshape(all, Shape{g.n * g.out[0], g.c * g.kernel[0], g.in[1], g.in[2]});
}
// The adjoint of unfolded.
Val folded(const Conv3dGeom& g, const Val& images) {
  Val all = reshape(images, Shape{g.n, g.out[0], g.c, g.kernel[0], g.in[1], g.in[2]});
  all = transpose(all, {0, 2, 3, 1, 4, 5});
  Val sum, none = filled(images, 0, images.dtype(), Shape{g.n, g.c, g.in[0] + 2 * g.pad[0], g.in[1], g.in[2]});
  for (int64_t k = 0; k < g.kernel[0]; ++k) {
    int64_t first = k * g.dilate[0];
    SliceAttrs to{{2}, {first}, {first + (g.out[0] - 1) * g.stride[0] + 1}, {g.stride[0]}};
    Val part = none.em->emit1("set_slice", {none, element(all, 2, k)}, make_attrs(std::move(to)));
    sum = sum ? sum + part : part;
  }
  return slice_axis(sum, 2, g.pad[0], g.pad[0] + g.in[0]);
}
// [N,O,OD,OH,OW] <-> [N*OD,O,OH,OW]
Val as_images(const Conv3dGeom& g, const Val& y) {
  return reshape(transpose(y, {0, 2, 1, 3, 4}), Shape{g.n * g.out[0], g.o, g.out[1], g.out[2]});
}
Val as_volumes(const Conv3dGeom& g, const Val& y) {
  return transpose(reshape(y, Shape{g.n, g.out[0], g.o, g.out[1], g.out[2]}), {0, 2, 1, 3, 4});
}
Shape flat_weight(const Conv3dGeom& g) { return {g.o, g.c / g.groups * g.kernel[0], g.kernel[1], g.kernel[2]}; }
Ints last_two(const int64_t (&v)[3]) { return {v[1], v[2]}; }

void decompose_conv3d(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Conv3dGeom g = conv3d_geom(attrs_as<Conv3dAttrs>(attrs), in[0].shape(), in[1].shape());
  Conv2dAttrs flat{last_two(g.stride), last_two(g.pad), last_two(g.dilate), g.groups};
  Val y = em.emit1("conv2d", {unfolded(g, in[0]), reshape(in[1], flat_weight(g))}, make_attrs(std::move(flat)));
  out[0] = as_volumes(g, y);
}
void decompose_conv3d_dx(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv3dDxAttrs>(attrs);
  Conv3dGeom g = conv3d_geom(at, to_shape(at.x_shape), in[1].shape());
  Conv2dDxAttrs flat{last_two(g.stride), last_two(g.pad), last_two(g.dilate), g.groups, {}};
  flat.x_shape = {g.n * g.out[0], g.c * g.kernel[0], g.in[1], g.in[2]};
  Val gx = em.emit1("conv2d_dx", {as_images(g, wide(in[0])), reshape(wide(in[1]), flat_weight(g))},
                    make_attrs(std::move(flat)));
  out[0] = cast(folded(g, gx), in[0].dtype());
}
void decompose_conv3d_dw(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv3dDwAttrs>(attrs);
  Shape w = to_shape(at.w_shape);
  Conv3dGeom g = conv3d_geom(at, in[0].shape(), w);
  Conv2dDwAttrs flat{last_two(g.stride), last_two(g.pad), last_two(g.dilate), g.groups, to_ints(flat_weight(g))};
  out[0] = reshape(em.emit1("conv2d_dw", {unfolded(g, in[0]), as_images(g, in[1])}, make_attrs(std::move(flat))), w);
}

}  // namespace

double Conv3dGeom::flops() const {
  return 2.0 * static_cast<double>(n * o * out_size()) * static_cast<double>(c / groups * taps());
}

template <class A>
Conv3dGeom conv3d_geom(const A& at, const Shape& x, const Shape& w) {
  Conv3dGeom g;
  g.n = x[0], g.c = x[1], g.groups = at.groups;
  g.o = w.rank == 6 ? w[0] * w[1] : w[0];
  for (int i = 0; i < 3; ++i) {
    auto k = static_cast<size_t>(i);
    g.in[i] = x[2 + i];
    g.kernel[i] = w[w.rank - 3 + i];
    g.stride[i] = at.stride[k], g.pad[i] = at.pad[k], g.dilate[i] = at.dilate[k];
    g.out[i] = (g.in[i] + 2 * g.pad[i] - g.dilate[i] * (g.kernel[i] - 1) - 1) / g.stride[i] + 1;
  }
  return g;
}
template Conv3dGeom conv3d_geom(const Conv3dAttrs&, const Shape&, const Shape&);
template Conv3dGeom conv3d_geom(const Conv3dDxAttrs&, const Shape&, const Shape&);
template Conv3dGeom conv3d_geom(const Conv3dDwAttrs&, const Shape&, const Shape&);

void register_conv3d(OpRegistry& r) {
  r.op("conv3d")
      .attrs<Conv3dAttrs>()
      .in("x", "weight")
      .out("y")
      .infer(infer_conv3d)
      .decompose(decompose_conv3d)
      .cost(cost_conv3d)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc(
          "Cross-correlation of x [N,C,D,H,W] with weight [O,C/groups,kd,kh,kw] or "
          "[groups,O/groups,C/groups,kd,kh,kw].");
  r.op("conv3d_dx")
      .attrs<Conv3dDxAttrs>()
      .in("gy", "weight")
      .out("gx")
      .infer(infer_conv3d_dx)
      .decompose(decompose_conv3d_dx)
      .cost(cost_conv3d_dx)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv3d in x: the transposed convolution that gives a result of shape x_shape.");
  r.op("conv3d_dw")
      .attrs<Conv3dDwAttrs>()
      .in("x", "gy")
      .out("gw")
      .infer(infer_conv3d_dw)
      .decompose(decompose_conv3d_dw)
      .cost(cost_conv3d_dw)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv3d in its weight, which has shape w_shape.");
}

}  // namespace mge
