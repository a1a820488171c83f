#include "op/reduce/scan.h"

#include "op/compose.h"
#include "op/in_build.h"
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

// x moved `by` elements along the axis in the direction of the scan, with `fill` in the gap.
Val moved(const Val& x, int axis, int64_t by, bool reverse, double fill) {
  int64_t n = x.shape()[axis];
  return reverse ? padded(slice_axis(x, axis, by, n), axis, 0, by, fill)
                 : padded(slice_axis(x, axis, 0, n - by), axis, by, 0, fill);
}
// Hillis and Steele: after step k each element holds the total of the 2^k up to it. Sums and products of floats are
// taken in double, as the kernels do.
Val scanned(const Val& x, int axis, bool reverse, const char* op, double identity) {
  Val y = is_float(x.dtype()) ? cast(x, DType::F64) : x;
  for (int64_t by = 1; by < x.shape()[axis]; by *= 2) y = binary(op, y, moved(y, axis, by, reverse, identity));
  return y;
}
void decompose_cumsum(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<CumsumAttrs>(attrs);
  int axis = normalize_axis("cumsum", a.axis, in[0].shape().rank);
  Val y = scanned(in[0], axis, a.reverse, "add", 0);
  if (a.exclusive && in[0].shape()[axis] > 0) y = moved(y, axis, 1, a.reverse, 0);
  out[0] = cast(y, in[0].dtype());
}
void decompose_cumprod(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<ScanAttrs>(attrs);
  int axis = normalize_axis("cumprod", a.axis, in[0].shape().rank);
  out[0] = cast(scanned(in[0], axis, a.reverse, "mul", 1), in[0].dtype());
}
// Two steps y -> a1 y + b1 and y -> a2 y + b2 are one: a2 a1 y + (a2 b1 + b2).
void decompose_affine_scan(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<ScanAttrs>(attrs);
  int axis = normalize_axis("affine_scan", at.axis, in[0].shape().rank);
  Val a = cast(in[0], DType::F64), b = cast(in[1], DType::F64);
  for (int64_t by = 1; by < a.shape()[axis]; by *= 2) {
    b = a * moved(b, axis, by, at.reverse, 0) + b;
    a = a * moved(a, axis, by, at.reverse, 1);
  }
  out[0] = cast(b, in[0].dtype());
}

}  // namespace

void register_scan(OpRegistry& r) {
  r.op("cumsum")
      .attrs<CumsumAttrs>()
      .in("x")
      .out("y")
      .infer(infer_cumsum)
      .decompose(decompose_cumsum)
      .doc("Running sums along the axis, in the dtype of x; float32 is summed in float64.");
  r.op("cumprod")
      .attrs<ScanAttrs>()
      .in("x")
      .out("y")
      .infer(infer_cumprod)
      .decompose(decompose_cumprod)
      .doc("Running products along the axis, in the dtype of x.");
  r.op("affine_scan")
      .attrs<ScanAttrs>()
      .in("a", "b")
      .out("y")
      .infer(infer_affine_scan)
      .decompose(decompose_affine_scan)
      .doc("y[i] = a[i] * y[i-1] + b[i] along the axis, y[-1] = 0: a first-order recurrence.");
}

}  // namespace mge
