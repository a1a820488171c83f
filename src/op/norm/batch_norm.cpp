#include "op/norm/batch_norm.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

void check_x(const InferCtx& c) {
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  nn::check_rank(c, 0, 2, kMaxRank);
}

// [C], or all ones but axis 1.
void check_channel_param(const InferCtx& c, size_t i) {
  int64_t channels = c.shape(0)[1];
  const Shape& s = c.shape(i);
  bool ok = s.rank == 1 ? s[0] == channels : s.rank >= 2;
  for (int k = 0; k < s.rank && s.rank >= 2; ++k) ok &= s[k] == (k == 1 ? channels : 1);
  MGE_CHECK(ok, Value, "{}: {} must have shape {} or [{}], one value per channel of input {}; got {}.", c.op->name,
            nn::input_name(c, i), batch_norm_stat_shape(c.shape(0)).str(), channels, c.shape(0).str(), s.str());
}

void check_eps(const InferCtx& c) {
  double eps = attrs_as<BatchNormAttrs>(c.attrs).eps;
  MGE_CHECK(eps >= 0, Value, "{}: eps must not be negative; got {}.", c.op->name, eps);
}

}  // namespace

void check_batch_norm(const InferCtx& c, size_t first, size_t last) {
  check_x(c);
  for (size_t i = first; i < last; ++i) check_channel_param(c, i);
}

namespace {

void infer_train(InferCtx& c) {
  check_x(c);
  check_eps(c);
  check_channel_param(c, 1);
  check_channel_param(c, 2);
  c.out[0].shape = c.shape(0);
  for (size_t i = 1; i < 4; ++i) c.out[i].shape = batch_norm_stat_shape(c.shape(0));
  for (Meta& m : c.out) m.dtype = c.dtype(1);
  c.out[0].dtype = c.dtype(0);
}

void infer_bwd(InferCtx& c) {
  check_x(c);
  nn::check_shape_is(c, 1, c.shape(0), "(that of x)");
  for (size_t i = 2; i < 5; ++i) check_channel_param(c, i);
  c.out[0].shape = c.shape(0);
  c.out[1].shape = c.out[2].shape = c.shape(2);
  for (Meta& m : c.out) m.dtype = c.dtype(2);
  c.out[0].dtype = c.dtype(0);
}

void infer_infer(InferCtx& c) {
  check_x(c);
  check_eps(c);
  for (size_t i = 1; i < 5; ++i) check_channel_param(c, i);
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = c.dtype(0);
}

void decompose_train(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val x = wide(in[0]);
  Shape stat = batch_norm_stat_shape(x.shape());
  Ints axes = batch_norm_axes(x.shape());
  Val mean = reduce(x, "mean", axes, true);
  Val xc = x - mean;
  Val var = reduce(xc * xc, "mean", axes, true);
  Val rstd = 1.0 / unary("sqrt", var + attrs_as<BatchNormAttrs>(attrs).eps);
  out[0] = xc * rstd * reshape(wide(in[1]), stat) + reshape(wide(in[2]), stat);
  out[1] = mean, out[2] = var, out[3] = rstd;
  for (size_t i = 0; i < 4; ++i) out[i] = cast(out[i], in[i ? 1 : 0].dtype());
}

void decompose_bwd(Emitter&, const AttrsBase*, std::span<const Val> in, std::span<Val> out) {
  Val x = wide(in[0]), gy = wide(in[1]);
  const Shape stat = batch_norm_stat_shape(x.shape()), param = in[2].shape();
  Ints axes = batch_norm_axes(x.shape());
  Val rstd = reshape(wide(in[4]), stat);
  double n = static_cast<double>(batch_norm_geom(x.shape()).count());
  Val xhat = (x - reshape(wide(in[3]), stat)) * rstd;
  Val gb = reduce(gy, "sum", axes, true);
  Val gw = reduce(gy * xhat, "sum", axes, true);
  out[0] = (reshape(wide(in[2]), stat) * rstd) * (gy - gb / n - xhat * (gw / n));
  out[1] = reshape(gw, param);
  out[2] = reshape(gb, param);
  for (size_t i = 0; i < 3; ++i) out[i] = cast(out[i], in[i ? 2 : 0].dtype());
}

// The kernels do exactly these steps, so this gives the same bits.
void decompose_infer(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Shape stat = batch_norm_stat_shape(in[0].shape());
  Val w = reshape(in[1], stat), b = reshape(in[2], stat), mean = reshape(in[3], stat), var = reshape(in[4], stat);
  Val scale = w / unary("sqrt", var + attrs_as<BatchNormAttrs>(attrs).eps);
  Val shift = b - mean * scale;
  out[0] = in[0] * scale + shift;
}

}  // namespace

BatchNormGeom batch_norm_geom(const Shape& x) {
  BatchNormGeom g{x[0], x[1], 1};
  for (int i = 2; i < x.rank; ++i) g.inner *= x[i];
  return g;
}

Shape batch_norm_stat_shape(const Shape& x) {
  Shape s = Shape::filled(x.rank, 1);
  s[1] = x[1];
  return s;
}

Ints batch_norm_axes(const Shape& x) {
  Ints axes{0};
  for (int i = 2; i < x.rank; ++i) axes.push_back(i);
  return axes;
}

void register_batch_norm(OpRegistry& r) {
  r.op("batch_norm_train")
      .attrs<BatchNormAttrs>()
      .in("x", "weight", "bias")
      .out("y", "mean", "var", "rstd")
      .infer(infer_train)
      .amp(Amp::Norm)
      .keeps_format(KeepsFormat::First)
      .promote(Promote::Float)
      .decompose(decompose_train)
      .doc(
          "Normalises x [N,C,..] by its own mean and biased variance per channel, then * weight + bias. "
          "Also gives those statistics and 1/sqrt(var+eps). x may have 16 bits beside float32 parameters: computed in "
          "float32, y in x's dtype, statistics in float32.");
  r.op("batch_norm_bwd")
      .in("x", "gy", "weight", "mean", "rstd")
      .out("gx", "gw", "gb")
      .infer(infer_bwd)
      .promote(Promote::Float)
      .decompose(decompose_bwd)
      .doc("Gradients of batch_norm_train in x, weight and bias.");
  r.op("batch_norm_infer")
      .attrs<BatchNormAttrs>()
      .in("x", "weight", "bias", "mean", "var")
      .out("y")
      .infer(infer_infer)
      .amp(Amp::Norm)
      .keeps_format(KeepsFormat::First)
      .promote(Promote::Float)
      .decompose(decompose_infer)
      .doc("scale = weight / sqrt(var + eps); shift = bias - mean * scale; y = x * scale + shift, each step rounded.");
}

}  // namespace mge
