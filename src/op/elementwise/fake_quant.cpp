#include "op/elementwise/fake_quant.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

void infer_fake_quant(InferCtx& c) {
  const auto& a = attrs_as<FakeQuantAttrs>(c.attrs);
  MGE_CHECK(a.qmin < a.qmax, Value, "{}: qmin must be below qmax; got {} and {}.", c.op->name, a.qmin, a.qmax);
  Meta& y = c.out[0];
  y.dtype = c.dtype(0);
  y.shape = c.shape(0);
  for (size_t i = 0; i < c.n(); ++i) {
    nn::check_float(c, i);
    nn::check_dtype(c, i, y.dtype);
    if (!(c.shape(i) == y.shape)) y.shape = broadcast_shapes(c.op->name.c_str(), y.shape, c.shape(i));
  }
}

// Each step is rounded on its own: the bits of kernels that do all of it in one pass.
void decompose_fake_quant(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<FakeQuantAttrs>(attrs);
  const Val x = wide(in[0]), scale = wide(in[1]), zero = wide(in[2]);
  const Val q = unary("round", x / scale) + zero;
  const Val low = maximum(q, scalar_like(q, a.lo())), kept = minimum(low, scalar_like(q, a.hi()));
  out[0] = cast((kept - zero) * scale, in[0].dtype());
}
Val fake_quant(Emitter& em, const AttrsBase* attrs, const Val& x, const Val& scale, const Val& zero) {
  return em.emit1("fake_quant", {x, scale, zero}, make_attrs(FakeQuantAttrs(attrs_as<FakeQuantAttrs>(attrs))));
}
void decompose_tqt(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  out[0] = fake_quant(em, attrs, in[0], binary("pow", scalar_like(in[1], 2), in[1]), scalar_like(in[0], 0));
}
// The gradient's factor has no part in the value, except that it may broadcast.
void decompose_lsq(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Val y = fake_quant(em, attrs, in[0], in[1], in[2]);
  out[0] = in[3].rank() == 0 ? y : y + in[3] * 0;
}

}  // namespace

void register_fake_quant(OpRegistry& r) {
  r.op("fake_quant")
      .attrs<FakeQuantAttrs>()
      .in("x", "scale", "zero_point")
      .out("y")
      .infer(infer_fake_quant)
      .promote(Promote::Float)
      .amp(Amp::High)
      .keeps_format(KeepsFormat::First)
      .decompose(decompose_fake_quant)
      .doc(
          "(q - zero_point) * scale with q = round(x / scale) + zero_point kept in qmin..qmax, halves away from zero; "
          "NaN stays NaN. The gradient passes where q needed no keeping.");
  r.op("tqt")
      .attrs<FakeQuantAttrs>()
      .in("x", "exponent")
      .out("y")
      .infer(infer_fake_quant)
      .promote(Promote::Float)
      .amp(Amp::High)
      .keeps_format(KeepsFormat::First)
      .decompose(decompose_tqt)
      .doc("fake_quant with the scale 2^exponent, which is learnt (Jain et al., 2019).");
  r.op("lsq")
      .attrs<FakeQuantAttrs>()
      .in("x", "step", "zero_point", "grad_scale")
      .out("y")
      .infer(infer_fake_quant)
      .promote(Promote::Float)
      .amp(Amp::High)
      .keeps_format(KeepsFormat::First)
      .decompose(decompose_lsq)
      .doc("fake_quant with a step that is learnt (Esser et al., 2019); its gradient is multiplied by grad_scale.");
}

}  // namespace mge
