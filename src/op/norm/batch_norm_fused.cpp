#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/norm/batch_norm.h"

namespace mge {
namespace {

const NormAct* find_act(const std::string& name) {
  for (const NormAct& a : kNormActs)
    if (a.name == name) return &a;
  return nullptr;
}
void check_act(const InferCtx& c, const std::string& act) {
  if (act == "none" || find_act(act)) return;
  std::string known = "none";
  for (const NormAct& a : kNormActs) known += ", " + std::string(a.name);
  fail(ErrorKind::Value, "{}: act must be one of {}; got \"{}\".", c.op->name, known, act);
}

void infer_fused(InferCtx& c) {
  const auto& at = attrs_as<BatchNormFusedAttrs>(c.attrs);
  check_act(c, at.act);
  const size_t want = at.has_add ? 4 : 3;
  MGE_CHECK(c.n() == want, Type, "batch_norm_fused: attributes {} need {} inputs; got {}.", c.attrs->print(), want,
            c.n());
  check_batch_norm(c, 1, 3);
  if (at.has_add) nn::check_shape_is(c, 3, c.shape(0), "(that of x)");
  c.out[0].shape = c.shape(0);
  for (size_t i = 1; i < 4; ++i) c.out[i].shape = batch_norm_stat_shape(c.shape(0));
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

void infer_fused_bwd(InferCtx& c) {
  check_act(c, attrs_as<BatchNormFusedBwdAttrs>(c.attrs).act);
  check_batch_norm(c, 2, 6);
  nn::check_shape_is(c, 1, c.shape(0), "(that of x)");
  c.out[0].shape = c.shape(0);
  c.out[1].shape = c.out[2].shape = c.shape(2);
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

void decompose_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<BatchNormFusedAttrs>(attrs);
  em.emit(OpRegistry::global().get("batch_norm_train"), make_attrs(BatchNormAttrs{at.eps}), in.first(3), out);
  if (at.has_add) out[0] = out[0] + in[3];
  if (at.act != "none") out[0] = unary(at.act.c_str(), out[0]);
}

void decompose_fused_bwd(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Val &x = in[0], &w = in[2], &mean = in[3], &rstd = in[4], &b = in[5];
  const Shape stat = batch_norm_stat_shape(x.shape());
  Val g = in[1];
  if (const NormAct* act = find_act(attrs_as<BatchNormFusedBwdAttrs>(attrs).act)) {
    Val y = (x - reshape(mean, stat)) * reshape(rstd, stat) * reshape(w, stat) + reshape(b, stat);
    if (act->of_output) y = unary(act->name.data(), y);
    g = binary(act->grad.data(), y, g);
  }
  const Val parts[] = {x, g, w, mean, rstd};
  em.emit(OpRegistry::global().get("batch_norm_bwd"), nullptr, parts, out);
}

}  // namespace

void register_batch_norm_fused(OpRegistry& r) {
  r.op("batch_norm_fused")
      .attrs<BatchNormFusedAttrs>()
      .in("x", "weight", "bias")
      .opt("add")
      .out("y", "mean", "var", "rstd")
      .infer(infer_fused)
      .promote(Promote::Float)
      .decompose(decompose_fused)
      .traits(kNoGrad)
      .doc(
          "batch_norm_train, then + add, act: the same bits as those ops alone. Made by a pass from a whole training "
          "step, so it has no gradient.");
  r.op("batch_norm_fused_bwd")
      .attrs<BatchNormFusedBwdAttrs>()
      .in("x", "gy", "weight", "mean", "rstd", "bias")
      .out("gx", "gw", "gb")
      .infer(infer_fused_bwd)
      .promote(Promote::Float)
      .decompose(decompose_fused_bwd)
      .traits(kNoGrad)
      .doc("batch_norm_bwd of the gradient that reaches it through act, which is computed again from x.");
}

}  // namespace mge
