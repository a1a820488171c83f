#include "op/loss/softmax.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

int axis_of(const InferCtx& c) {
  return normalize_axis(c.op->name.c_str(), attrs_as<SoftmaxAttrs>(c.attrs).axis, c.shape(0).rank);
}
Ints axes_of(const AttrsBase* attrs, const Val& x) {
  return Ints{normalize_axis("softmax", attrs_as<SoftmaxAttrs>(attrs).axis, x.shape().rank)};
}

void infer_softmax(InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 1, kMaxRank);
  axis_of(c);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

void infer_softmax_bwd(InferCtx& c) {
  infer_softmax(c);
  nn::check_float(c, 1);
  nn::check_shape_is(c, 1, c.shape(0), "(that of y)");
}

// x less its largest element along the axis; the parts of an empty x are empty.
Val below_max(const Val& x, const Ints& axes) { return x.shape().numel() == 0 ? x : x - reduce(x, "max", axes, true); }

void decompose_softmax(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Ints axes = axes_of(attrs, in[0]);
  Val e = unary("exp", below_max(wide(in[0]), axes));
  out[0] = cast(e / reduce(e, "sum", axes, true), in[0].dtype());
}

void decompose_softmax_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val y = wide(in[0]), gy = wide(in[1]);
  out[0] = cast(y * (gy - reduce(gy * y, "sum", axes_of(attrs, y), true)), in[0].dtype());
}

void decompose_logsoftmax(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Ints axes = axes_of(attrs, in[0]);
  Val xc = below_max(wide(in[0]), axes);
  out[0] = cast(xc - unary("log", reduce(unary("exp", xc), "sum", axes, true)), in[0].dtype());
}

void decompose_logsoftmax_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val y = wide(in[0]), gy = wide(in[1]);
  out[0] = cast(gy - unary("exp", y) * reduce(gy, "sum", axes_of(attrs, y), true), in[0].dtype());
}

}  // namespace

AxisGeom axis_geom(const Shape& x, int axis) {
  AxisGeom g;
  for (int i = 0; i < axis; ++i) g.outer *= x[i];
  g.size = x[axis];
  for (int i = axis + 1; i < x.rank; ++i) g.inner *= x[i];
  return g;
}

void register_softmax(OpRegistry& r) {
  r.op("softmax")
      .attrs<SoftmaxAttrs>()
      .in("x")
      .out("y")
      .infer(infer_softmax)
      .promote(Promote::Float)
      .decompose(decompose_softmax)
      .doc("exp(x - max) / sum(exp(x - max)) along one axis.");
  r.op("softmax_bwd")
      .attrs<SoftmaxAttrs>()
      .in("y", "gy")
      .out("gx")
      .infer(infer_softmax_bwd)
      .promote(Promote::Float)
      .decompose(decompose_softmax_bwd)
      .doc("y * (gy - sum(gy * y)).");
  r.op("logsoftmax")
      .attrs<SoftmaxAttrs>()
      .in("x")
      .out("y")
      .infer(infer_softmax)
      .amp(Amp::High)
      .promote(Promote::Float)
      .decompose(decompose_logsoftmax)
      .doc("x - max - log(sum(exp(x - max))) along one axis.");
  r.op("logsoftmax_bwd")
      .attrs<SoftmaxAttrs>()
      .in("y", "gy")
      .out("gx")
      .infer(infer_softmax_bwd)
      .promote(Promote::Float)
      .decompose(decompose_logsoftmax_bwd)
      .doc("gy - exp(y) * sum(gy).");
}

}  // namespace mge
