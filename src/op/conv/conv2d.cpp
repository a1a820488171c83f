#include "op/conv/conv2d.h"

#include "op/emitter.h"
#include "op/nn.h"

namespace mge {
namespace {

struct Params {
  nn::Pair stride, pad, dilate;
};

constexpr int64_t kMost = int64_t{1} << 31;  // of a weight's dimensions: keeps the size arithmetic far from overflow

template <class A>
Params params_of(const InferCtx& c, const A& at) {
  MGE_CHECK(at.groups >= 1, Value, "{}: groups must be at least 1; got {}.", c.op->name, at.groups);
  MGE_CHECK(at.groups < kMost, Value, "{}: groups is too large; got {}.", c.op->name, at.groups);
  return {nn::pair_of(c, "stride", at.stride, 1), nn::pair_of(c, "pad", at.pad, 0),
          nn::pair_of(c, "dilate", at.dilate, 1)};
}

int64_t out_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d) {
  return (in + 2 * p - d * (k - 1) - 1) / s + 1;
}

// Checks x against w and returns the shape of y.
template <class A>
Shape output_shape(const InferCtx& c, const A& at, const Shape& x, const Shape& w) {
  const std::string& op = c.op->name;
  Params p = params_of(c, at);
  MGE_CHECK(x.rank == 4, Value, "{}: input must be [N,C,H,W]; got {}.", op, x.str());
  MGE_CHECK(w.rank == 4 || w.rank == 5, Value,
            "{}: weight must be [O,C/groups,kh,kw] or [groups,O/groups,C/groups,kh,kw]; got {}.", op, w.str());
  for (const Shape* s : {&x, &w}) check_shape(op.c_str(), *s);  // they may come from attributes
  for (int64_t d : w) MGE_CHECK(d < kMost, Value, "{}: a dimension of weight {} is too large.", op, w.str());
  bool five = w.rank == 5;
  if (five)
    MGE_CHECK(w[0] == at.groups, Value,
              "{}: weight {} is laid out for {} groups but groups is {}. groups={} would match.", op, w.str(), w[0],
              at.groups, w[0]);
  int64_t o = five ? w[0] * w[1] : w[0], cg = w[w.rank - 3], kh = w[w.rank - 2], kw = w[w.rank - 1];
  if (x[1] != cg * at.groups) {
    int64_t fit = cg > 0 && x[1] % cg == 0 ? x[1] / cg : 0;
    bool would = !five && fit >= 1 && o % fit == 0;
    fail(ErrorKind::Value,
         "{}: input has {} channels but weight expects {} (weight.shape[{}] {} x groups {}); input {}, weight {}.{}",
         op, x[1], cg * at.groups, w.rank - 3, cg, at.groups, x.str(), w.str(),
         would ? format(" groups={} would match.", fit) : "");
  }
  MGE_CHECK(o % at.groups == 0, Value, "{}: {} output channels cannot be split into {} groups; weight {}.", op, o,
            at.groups, w.str());
  MGE_CHECK(kh >= 1 && kw >= 1, Value, "{}: the kernel is empty; weight {}.", op, w.str());
  int64_t eh = p.dilate.h * (kh - 1) + 1, ew = p.dilate.w * (kw - 1) + 1;
  int64_t hh = x[2] + 2 * p.pad.h, ww = x[3] + 2 * p.pad.w;
  MGE_CHECK(eh <= hh && ew <= ww, Value,
            "{}: kernel {}x{} (dilated {}x{}) is larger than the padded input {}x{}; input {}, weight {}. "
            "Raise pad or use a smaller kernel.",
            op, kh, kw, eh, ew, hh, ww, x.str(), w.str());
  return Shape{x[0], o, out_size(x[2], kh, p.stride.h, p.pad.h, p.dilate.h),
               out_size(x[3], kw, p.stride.w, p.pad.w, p.dilate.w)};
}

void check_bias(const InferCtx& c, size_t i, int64_t o, std::string_view why) {
  nn::check_shape_is(c, i, Shape{1, o, 1, 1}, why);
}

void infer_conv2d(InferCtx& c) {
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  Shape y = output_shape(c, attrs_as<Conv2dAttrs>(c.attrs), c.shape(0), c.shape(1));
  if (c.n() == 3) check_bias(c, 2, y[1], "(one value per output channel)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = y;
}

void infer_conv2d_dx(InferCtx& c) {
  const auto& at = attrs_as<Conv2dDxAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) nn::check_float(c, i);
  Shape x = to_shape(at.x_shape);
  Shape y = output_shape(c, at, x, c.shape(1));
  nn::check_shape_is(c, 0, y, format("(the output of conv2d on x_shape {})", x.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}

void infer_conv2d_dw(InferCtx& c) {
  const auto& at = attrs_as<Conv2dDwAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) nn::check_float(c, i);
  Shape w = to_shape(at.w_shape);
  Shape y = output_shape(c, at, c.shape(0), w);
  nn::check_shape_is(c, 1, y, format("(the output of conv2d on x {} and w_shape {})", c.shape(0).str(), w.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = w;
}

void infer_conv2d_fused(InferCtx& c) {
  const auto& at = attrs_as<Conv2dFusedAttrs>(c.attrs);
  MGE_CHECK(at.act == "none" || at.act == "relu", Value, "conv2d_fused: act must be none or relu; got \"{}\".", at.act);
  Conv2dExtras e = conv2d_extras(at);
  size_t want = 2 + static_cast<size_t>(e.count);
  MGE_CHECK(c.n() == want, Type, "conv2d_fused: attributes {} need {} inputs; got {}.", c.attrs->print(), want, c.n());
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  Shape y = output_shape(c, at, c.shape(0), c.shape(1));
  for (int i : {e.bias, e.scale, e.shift})
    if (i >= 0) check_bias(c, static_cast<size_t>(i), y[1], "(one value per output channel)");
  if (e.add >= 0) nn::check_shape_is(c, static_cast<size_t>(e.add), y, "(that of the convolution)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = y;
}

// Each step rounded, as the kernels do, so the dtype stays what it is.
void decompose_conv2d_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv2dFusedAttrs>(attrs);
  Conv2dExtras e = conv2d_extras(at);
  auto extra = [&](int i) -> const Val& { return in[static_cast<size_t>(i)]; };
  Val y = em.emit1("conv2d", {in[0], in[1]}, make_attrs(Conv2dAttrs{at.stride, at.pad, at.dilate, at.groups}));
  if (e.bias >= 0) y = y + extra(e.bias);
  if (e.scale >= 0) y = y * extra(e.scale) + extra(e.shift);
  if (e.add >= 0) y = y + extra(e.add);
  out[0] = cast(at.act == "relu" ? unary("relu", y) : y, in[0].dtype());
}

double cost_conv2d(const InferCtx& c) {
  return conv2d_geom(attrs_as<Conv2dAttrs>(c.attrs), c.shape(0), c.shape(1)).flops();
}
double cost_conv2d_dx(const InferCtx& c) {
  const auto& at = attrs_as<Conv2dDxAttrs>(c.attrs);
  return conv2d_geom(at, to_shape(at.x_shape), c.shape(1)).flops();
}
double cost_conv2d_dw(const InferCtx& c) {
  const auto& at = attrs_as<Conv2dDwAttrs>(c.attrs);
  return conv2d_geom(at, c.shape(0), to_shape(at.w_shape)).flops();
}
double cost_conv2d_fused(const InferCtx& c) {
  return conv2d_geom(attrs_as<Conv2dFusedAttrs>(c.attrs), c.shape(0), c.shape(1)).flops();
}

}  // namespace

double Conv2dGeom::flops() const {
  return 2.0 * static_cast<double>(n * o * oh * ow) * static_cast<double>(c / groups * kh * kw);
}

template <class A>
Conv2dGeom conv2d_geom(const A& at, const Shape& x, const Shape& w) {
  nn::Pair s = nn::pair_of(at.stride), p = nn::pair_of(at.pad), d = nn::pair_of(at.dilate);
  Conv2dGeom g;
  g.n = x[0], g.c = x[1], g.h = x[2], g.w = x[3];
  g.o = w.rank == 5 ? w[0] * w[1] : w[0];
  g.kh = w[w.rank - 2], g.kw = w[w.rank - 1];
  g.sh = s.h, g.sw = s.w, g.ph = p.h, g.pw = p.w, g.dh = d.h, g.dw = d.w, g.groups = at.groups;
  g.oh = out_size(g.h, g.kh, g.sh, g.ph, g.dh);
  g.ow = out_size(g.w, g.kw, g.sw, g.pw, g.dw);
  return g;
}
template Conv2dGeom conv2d_geom(const Conv2dAttrs&, const Shape&, const Shape&);
template Conv2dGeom conv2d_geom(const Conv2dDxAttrs&, const Shape&, const Shape&);
template Conv2dGeom conv2d_geom(const Conv2dDwAttrs&, const Shape&, const Shape&);
template Conv2dGeom conv2d_geom(const Conv2dFusedAttrs&, const Shape&, const Shape&);

Conv2dExtras conv2d_extras(const Conv2dFusedAttrs& at) {
  Conv2dExtras e;
  int next = 2;
  if (at.has_bias) e.bias = next++;
  if (at.has_scale) e.scale = next++, e.shift = next++;
  if (at.has_add) e.add = next++;
  e.count = next - 2;
  return e;
}

void register_conv2d(OpRegistry& r) {
  r.op("conv2d")
      .attrs<Conv2dAttrs>()
      .in("x", "weight")
      .opt("bias")
      .out("y")
      .infer(infer_conv2d)
      .amp(Amp::Low)
      .keeps_format(KeepsFormat::First)
      .cost(cost_conv2d)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc(
          "Cross-correlation of x [N,C,H,W] with weight [O,C/groups,kh,kw] or [groups,O/groups,C/groups,kh,kw]; "
          "the rounded sum plus bias [1,O,1,1].");
  r.op("conv2d_dx")
      .attrs<Conv2dDxAttrs>()
      .in("gy", "weight")
      .out("gx")
      .infer(infer_conv2d_dx)
      .amp(Amp::Low)
      .cost(cost_conv2d_dx)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv2d in x: the transposed convolution that gives a result of shape x_shape.");
  r.op("conv2d_dw")
      .attrs<Conv2dDwAttrs>()
      .in("x", "gy")
      .out("gw")
      .infer(infer_conv2d_dw)
      .cost(cost_conv2d_dw)
      .promote(Promote::Float)
      .traits(kComputeBound)
      .doc("Adjoint of conv2d in its weight, which has shape w_shape.");
  auto fused = r.op("conv2d_fused");
  fused.attrs<Conv2dFusedAttrs>()
      .in("x", "weight")
      .opt("extra0", "extra1", "extra2", "extra3")
      .out("y")
      .infer(infer_conv2d_fused)
      .decompose(decompose_conv2d_fused)
      .cost(cost_conv2d_fused)
      .traits(kComputeBound | kNoGrad)
      .doc(
          "conv2d, then + bias, * scale, + shift, + add, act, each step rounded: the same bits as those ops alone. "
          "Made by a pass for inference, so it has no gradient. Extras come in that order.");
}

}  // namespace mge
