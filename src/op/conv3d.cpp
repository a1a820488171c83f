#include "op/conv3d.h"

#include "op/nn.h"

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
      .cost(cost_conv3d_dx)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv3d in x: the transposed convolution that gives a result of shape x_shape.");
  r.op("conv3d_dw")
      .attrs<Conv3dDwAttrs>()
      .in("x", "gy")
      .out("gw")
      .infer(infer_conv3d_dw)
      .cost(cost_conv3d_dw)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv3d in its weight, which has shape w_shape.");
}

}  // namespace mge
