#include "op/norm/layer_norm.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

Shape trailing(const Shape& x, int64_t n) { return Shape(x.d + (x.rank - n), static_cast<size_t>(n)); }
Shape stat_shape(Shape x, int64_t n) {
  for (int64_t i = x.rank - n; i < x.rank; ++i) x[static_cast<int>(i)] = 1;
  return x;
}
Ints range(int64_t b, int64_t e) {
  Ints v;
  for (; b < e; ++b) v.push_back(b);
  return v;
}

void check_axes(const InferCtx& c, int64_t n) {
  MGE_CHECK(n >= 1 && n <= c.shape(0).rank, Value, "{}: n_axes must be 1..{} for input {}; got {}.", c.op->name,
            int{c.shape(0).rank}, c.shape(0).str(), n);
}

void infer_layer_norm(InferCtx& c) {
  const auto& at = attrs_as<LayerNormAttrs>(c.attrs);
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  nn::check_rank(c, 0, 1, kMaxRank);
  check_axes(c, at.n_axes);
  MGE_CHECK(at.eps >= 0, Value, "layer_norm: eps must not be negative; got {}.", at.eps);
  MGE_CHECK(c.n() != 2, Type, "layer_norm: weight and bias come together; got only one of them.");
  for (size_t i = 1; i < c.n(); ++i)
    nn::check_shape_is(c, i, trailing(c.shape(0), at.n_axes),
                       format("(the last {} axes of x {})", at.n_axes, c.shape(0).str()));
  c.out[0].shape = c.shape(0);
  c.out[1].shape = c.out[2].shape = stat_shape(c.shape(0), at.n_axes);
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

void infer_layer_norm_bwd(InferCtx& c) {
  const auto& at = attrs_as<LayerNormBwdAttrs>(c.attrs);
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  nn::check_rank(c, 0, 1, kMaxRank);
  check_axes(c, at.n_axes);
  nn::check_shape_is(c, 1, c.shape(0), "(that of x)");
  for (size_t i : {2, 3})
    nn::check_shape_is(c, i, stat_shape(c.shape(0), at.n_axes), "(x with the normalised axes at 1)");
  Shape param{0};  // no weight: the two parameter gradients are empty
  if (c.n() == 5) {
    param = trailing(c.shape(0), at.n_axes);
    nn::check_shape_is(c, 4, param, format("(the last {} axes of x {})", at.n_axes, c.shape(0).str()));
  }
  c.out[0].shape = c.shape(0);
  c.out[1].shape = c.out[2].shape = param;
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

void decompose_layer_norm(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<LayerNormAttrs>(attrs);
  Val x = wide(in[0]);
  Ints axes = range(x.shape().rank - at.n_axes, x.shape().rank);
  Val mean = reduce(x, "mean", axes, true);
  Val xc = x - mean;
  Val rstd = 1.0 / unary("sqrt", reduce(xc * xc, "mean", axes, true) + at.eps);
  Val y = xc * rstd;
  if (in.size() == 3) y = y * wide(in[1]) + wide(in[2]);
  out[0] = y, out[1] = mean, out[2] = rstd;
  for (Val& v : out) v = cast(v, in[0].dtype());
}

void decompose_layer_norm_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<LayerNormBwdAttrs>(attrs);
  Val x = wide(in[0]), gy = wide(in[1]), mean = wide(in[2]), rstd = wide(in[3]);
  int64_t lead = x.shape().rank - at.n_axes;
  Ints axes = range(lead, x.shape().rank);
  Val xhat = (x - mean) * rstd;
  Val g = in.size() == 5 ? gy * wide(in[4]) : gy;
  out[0] = rstd * (g - reduce(g, "mean", axes, true) - xhat * reduce(g * xhat, "mean", axes, true));
  if (in.size() == 5) {
    bool any = lead > 0;
    out[1] = any ? reduce(gy * xhat, "sum", range(0, lead), false) : gy * xhat;
    out[2] = any ? reduce(gy, "sum", range(0, lead), false) : gy;
  } else {
    out[1] = out[2] = broadcast_to(scalar_like(x, 0), Shape{0});
  }
  for (Val& v : out) v = cast(v, in[0].dtype());
}

}  // namespace

LayerNormGeom layer_norm_geom(const Shape& x, int64_t n_axes) {
  LayerNormGeom g;
  for (int i = 0; i < x.rank; ++i) (i < x.rank - n_axes ? g.rows : g.size) *= x[i];
  return g;
}

void register_layer_norm(OpRegistry& r) {
  r.op("layer_norm")
      .attrs<LayerNormAttrs>()
      .in("x")
      .opt("weight", "bias")
      .out("y", "mean", "rstd")
      .infer(infer_layer_norm)
      .amp(Amp::High)
      .promote(Promote::Float)
      .decompose(decompose_layer_norm)
      .doc("Normalises the last n_axes axes of x to mean 0 and variance 1, then * weight + bias.");
  r.op("layer_norm_bwd")
      .attrs<LayerNormBwdAttrs>()
      .in("x", "gy", "mean", "rstd")
      .opt("weight")
      .out("gx", "gw", "gb")
      .infer(infer_layer_norm_bwd)
      .promote(Promote::Float)
      .decompose(decompose_layer_norm_bwd)
      .doc("Gradients of layer_norm in x, weight and bias; the last two are empty without weight.");
}

}  // namespace mge
