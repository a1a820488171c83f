#include "op/scan.h"

#include "op/nn.h"

namespace mge {
namespace {

void check_number(const InferCtx& c) {
  MGE_CHECK(is_float(c.dtype(0)) || is_int(c.dtype(0)), Type,
            "{}: takes integer or floating-point tensors; got {}. Cast with astype.", c.op->name, c.in[0]->str());
}
void like_first(InferCtx& c, int64_t axis) {
  nn::check_rank(c, 0, 1, kMaxRank);
  normalize_axis(c.op->name.c_str(), axis, c.shape(0).rank);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}
void infer_cumsum(InferCtx& c) {
  check_number(c);
  like_first(c, attrs_as<CumsumAttrs>(c.attrs).axis);
}
void infer_cumprod(InferCtx& c) {
  check_number(c);
  like_first(c, attrs_as<ScanAttrs>(c.attrs).axis);
}
void infer_affine_scan(InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_dtype(c, 1, c.dtype(0));
  nn::check_shape_is(c, 1, c.shape(0), "(that of a)");
  like_first(c, attrs_as<ScanAttrs>(c.attrs).axis);
}

}  // namespace

void register_scan(OpRegistry& r) {
  r.op("cumsum")
      .attrs<CumsumAttrs>()
      .in("x")
      .out("y")
      .infer(infer_cumsum)
      .doc("Running sums along the axis, in the dtype of x; float32 is summed in float64.");
  r.op("cumprod")
      .attrs<ScanAttrs>()
      .in("x")
      .out("y")
      .infer(infer_cumprod)
      .doc("Running products along the axis, in the dtype of x.");
  r.op("affine_scan")
      .attrs<ScanAttrs>()
      .in("a", "b")
      .out("y")
      .infer(infer_affine_scan)
      .doc("y[i] = a[i] * y[i-1] + b[i] along the axis, y[-1] = 0: a first-order recurrence.");
}

}  // namespace mge
