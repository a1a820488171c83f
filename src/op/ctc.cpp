#include "op/ctc.h"

#include "op/nn.h"

namespace mge {
namespace {

void check_ctc(const InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 3, 3);
  for (size_t i = 1; i < 4; ++i) nn::check_dtype(c, i, DType::I32);
  const Shape& p = c.shape(0);
  for (size_t i : {1, 3}) nn::check_shape_is(c, i, Shape{p[1]}, format("(one length for each of pred {})", p.str()));
  const Shape& l = c.shape(2);
  MGE_CHECK(l.rank == 1 || (l.rank == 2 && l[0] == p[1]), Value,
            "{}: label must be [N,S] or one row of all labels; got {} for pred {}.", c.op->name, l.str(), p.str());
  int64_t blank = attrs_as<CtcAttrs>(c.attrs).blank;
  MGE_CHECK(blank >= 0 && blank < p[2], Value, "{}: blank must be a class of 0..{}; got {}.", c.op->name, p[2] - 1,
            blank);
}

void infer_ctc(InferCtx& c) {
  check_ctc(c);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = Shape{c.shape(0)[1]};
}
void infer_ctc_bwd(InferCtx& c) {
  check_ctc(c);
  nn::check_dtype(c, 4, c.dtype(0));
  nn::check_shape_is(c, 4, Shape{c.shape(0)[1]}, "(one loss per sequence)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

}  // namespace

void register_ctc(OpRegistry& r) {
  r.op("ctc_loss")
      .attrs<CtcAttrs>()
      .in("pred", "pred_lengths", "label", "label_lengths")
      .out("loss")
      .infer(infer_ctc)
      .doc("-log p(label | pred) for each sequence, summed over all alignments in log space and double.");
  r.op("ctc_loss_bwd")
      .attrs<CtcAttrs>()
      .in("pred", "pred_lengths", "label", "label_lengths", "gy")
      .out("gpred")
      .infer(infer_ctc_bwd)
      .doc("Gradient of ctc_loss in pred, by the forward and backward recursions. First order only.");
}

}  // namespace mge
