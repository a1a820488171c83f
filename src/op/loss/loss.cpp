#include "op/loss/loss.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/nn.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

int check_label(const InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 1, kMaxRank);
  nn::check_dtype(c, 1, DType::I32);
  int axis = normalize_axis(c.op->name.c_str(), attrs_as<XentAttrs>(c.attrs).axis, c.shape(0).rank);
  Shape want = c.shape(0);
  want.erase(axis);
  nn::check_shape_is(c, 1, want,
                     format("({} {} without the class axis {})", nn::input_name(c, 0), c.shape(0).str(), axis));
  return axis;
}

void infer_softmax_xent(InferCtx& c) {
  check_label(c);
  c.out[0].shape = c.shape(1);
  c.out[1].shape = c.shape(0);
  c.out[0].dtype = c.out[1].dtype = c.dtype(0);
}

void infer_softmax_xent_bwd(InferCtx& c) {
  check_label(c);
  nn::check_dtype(c, 2, c.dtype(0));
  nn::check_shape_is(c, 2, c.shape(1), "(that of label)");
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = c.dtype(0);
}

void decompose_softmax_xent(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val x = wide(in[0]);
  int axis = normalize_axis("softmax_xent", attrs_as<XentAttrs>(attrs).axis, x.shape().rank);
  Val label = checked_index(in[1], x.shape()[axis], "softmax_xent");
  Val xc = x.shape().numel() == 0 ? x : x - reduce(x, "max", {axis}, true);
  Val e = unary("exp", xc), sum = reduce(e, "sum", {axis}, true);
  Val at_label = em.emit1("indexing_one_hot", {xc, label}, make_attrs(OneHotAttrs{.axis = axis}));
  const Val at = em.emit1("squeeze", {sum}, make_attrs(AxesAttrs{{axis}}));
  out[0] = cast(unary("log", at) - at_label, in[0].dtype());
  out[1] = cast(e / sum, in[0].dtype());
}

void decompose_softmax_xent_bwd(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  Val p = wide(in[0]), g = wide(in[2]);
  int axis = normalize_axis("softmax_xent_bwd", attrs_as<XentAttrs>(attrs).axis, p.shape().rank);
  Val at_label = em.emit1("set_one_hot", {zeros_like(p), in[1], g}, make_attrs(OneHotAttrs{.axis = axis}));
  out[0] = cast(p * em.emit1("expand_dims", {g}, make_attrs(AxesAttrs{{axis}})) - at_label, in[0].dtype());
}

}  // namespace

void register_loss(OpRegistry& r) {
  r.op("softmax_xent")
      .attrs<XentAttrs>()
      .in("x", "label")
      .out("loss", "p")
      .refuses(0b10)
      .infer(infer_softmax_xent)
      .decompose(decompose_softmax_xent)
      .amp(Amp::High)
      .doc(
          "loss = log(sum(exp(x))) - x[label] along the class axis, and p = softmax(x). "
          "A label outside 0..classes-1 is an Index error when the kernel runs.");
  r.op("softmax_xent_bwd")
      .attrs<XentAttrs>()
      .in("p", "label", "gloss")
      .out("gx")
      .refuses(0b10)
      .infer(infer_softmax_xent_bwd)
      .decompose(decompose_softmax_xent_bwd)
      .doc("(p - one_hot(label)) * gloss.");
}

}  // namespace mge
