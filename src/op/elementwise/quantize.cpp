#include "op/elementwise/quantize.h"

#include <cmath>

#include "op/nn.h"

namespace mge {
namespace {

void check_scale(const InferCtx& c, const QuantizeAttrs& a) {
  MGE_CHECK(is_quant(a.dtype), Type, "{}: needs a quantised dtype, for example qint8; got {}.", c.op->name,
            dtype_name(a.dtype));
  MGE_CHECK(dtype_size(a.dtype) > 0, NotImplemented, "{}: {} is stored in packed form, which has no kernels yet.",
            c.op->name, dtype_name(a.dtype));
  MGE_CHECK(a.scale > 0 && std::isfinite(a.scale), Value, "{}: the scale must be above 0; got {}.", c.op->name,
            a.scale);
}

void infer_quantize(InferCtx& c) {
  const auto& a = attrs_as<QuantizeAttrs>(c.attrs);
  nn::check_float(c, 0);
  check_scale(c, a);
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = a.dtype;
  c.out[0].quant = {a.scale, static_cast<int32_t>(a.zero_point)};
}
void infer_dequantize(InferCtx& c) {
  const auto& a = attrs_as<QuantizeAttrs>(c.attrs);
  check_scale(c, a);
  nn::check_dtype(c, 0, a.dtype);
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = DType::F32;
}

}  // namespace

QuantRange quant_range(DType t) {
  switch (t) {
    case DType::QU8:
      return {0, 255};
    case DType::QI8:
      return {-128, 127};
    case DType::QI16:
      return {-32768, 32767};
    case DType::QI32:
      return {-2147483648ll, 2147483647ll};
    case DType::QU4:
      return {0, 15};
    case DType::QI4:
      return {-8, 7};
    default:
      return {0, 1};
  }
}

void register_quantize(OpRegistry& r) {
  r.op("quantize")
      .attrs<QuantizeAttrs>()
      .in("x")
      .out("q")
      .infer(infer_quantize)
      .traits(kNoGrad)
      .doc("round(x / scale) + zero_point, halves to even, kept inside the range of the dtype.");
  r.op("dequantize")
      .attrs<QuantizeAttrs>()
      .in("q")
      .out("x")
      .infer(infer_dequantize)
      .traits(kNoGrad)
      .doc("scale * (q - zero_point) as float32.");
}

}  // namespace mge
