#include "op/conv/conv2d.h"

#include "op/elementwise/scalar_body.h"
#include "op/emitter.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

void infer_conv2d_fused(InferCtx& c) {
  const auto& at = attrs_as<Conv2dFusedAttrs>(c.attrs);
  const OpDef* act = OpRegistry::global().find(at.act);
  MGE_CHECK(at.act == "none" || at.act == "prelu" || (act && fusable_act(*act)), Value,
            "conv2d_fused: act must be none, prelu or an elementwise op of one operand, such as relu; got \"{}\".",
            at.act);
  MGE_CHECK(at.tile == 0 || at.tile == 4, Value, "conv2d_fused: tile must be 0 or 4; got {}.", at.tile);
  Conv2dExtras e = conv2d_extras(at);
  size_t want = 2 + static_cast<size_t>(e.count);
  MGE_CHECK(c.n() == want, Type, "conv2d_fused: attributes {} need {} inputs; got {}.", c.attrs->print(), want, c.n());
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  Shape y = conv_output(c, at, c.shape(0), c.shape(1));
  for (int i : {e.bias, e.scale, e.shift})
    if (i >= 0) nn::check_shape_is(c, static_cast<size_t>(i), Shape{1, y[1], 1, 1}, "(one value per output channel)");
  if (e.add >= 0) nn::check_shape_is(c, static_cast<size_t>(e.add), y, "(that of the convolution)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = y;
}

// Each step rounded, as the kernels do, so the dtype stays what it is.
void decompose_conv2d_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<Conv2dFusedAttrs>(attrs);
  Conv2dExtras e = conv2d_extras(at);
  auto extra = [&](int i) -> const Val& { return in[static_cast<size_t>(i)]; };
  Val y = em.emit1("conv2d", {in[0], in[1]}, make_attrs<Conv2dAttrs>(at));
  if (e.bias >= 0) y = y + extra(e.bias);
  if (e.scale >= 0) y = y * extra(e.scale) + extra(e.shift);
  if (e.add >= 0) y = y + extra(e.add);
  if (at.act == "prelu")
    y = binary("prelu", y, scalar_like(y, at.slope));
  else if (at.act != "none")
    y = unary(at.act.c_str(), y);
  out[0] = cast(y, in[0].dtype());
}

}  // namespace

bool fusable_act(const OpDef& op) {
  const ScalarBody* b = op.scalar;
  const bool floats = b && (b->domain == Domain::Float || b->domain == Domain::Number || b->domain == Domain::Any);
  return floats && b->arity == 1 && !b->bool_out;
}

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
  conv_op<Conv2dAttrs>(r)
      .in("x", "weight")
      .opt("bias")
      .out("y")
      .amp(Amp::Low)
      .keeps_format(KeepsFormat::First)
      .doc(
          "Cross-correlation of x [N,C,H,W] with weight [O,C/groups,kh,kw] or [groups,O/groups,C/groups,kh,kw]; "
          "the rounded sum plus bias [1,O,1,1].");
  conv_op<Conv2dDxAttrs>(r)
      .in("gy", "weight")
      .out("gx")
      .amp(Amp::Low)
      .doc("Adjoint of conv2d in x: the transposed convolution that gives a result of shape x_shape.");
  conv_op<Conv2dDwAttrs>(r).in("x", "gy").out("gw").doc("Adjoint of conv2d in its weight, which has shape w_shape.");
  r.op("conv2d_fused")
      .attrs<Conv2dFusedAttrs>()
      .in("x", "weight")
      .opt("extra0", "extra1", "extra2", "extra3")
      .out("y")
      .infer(infer_conv2d_fused)
      .decompose(decompose_conv2d_fused)
      .cost(cost_conv<Conv2dFusedAttrs>)
      .traits(kComputeBound | kNoGrad)
      .doc(
          "conv2d, then + bias, * scale, + shift, + add, act, each step rounded: the same bits as those ops alone. "
          "Made by a pass for inference, so it has no gradient. Extras come in that order.");
}

}  // namespace mge
