#include "op/quant/quantize.h"
#include "op/in_build.h"

#include <cmath>

#include "op/nn.h"

namespace mge {
namespace {

void infer_quantize(InferCtx& c) {
  const auto& a = attrs_as<QuantizeAttrs>(c.attrs);
  nn::check_float(c, 0);
  check_qtype(c, a.type, c.shape(0));
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = a.type.dtype;
  c.out[0].quant = a.type.quant;
}
void infer_dequantize(InferCtx& c) {
  MGE_CHECK(is_quant(c.dtype(0)), Type, "dequantize: takes a quantised tensor; got {}.", c.x(0).str());
  check_qtype(c, c.x(0).qtype(), c.shape(0));
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = DType::F32;
}

}  // namespace

void check_qtype(const InferCtx& c, const QType& t, const Shape& s) {
  MGE_CHECK(is_quant(t.dtype), Type, "{}: needs a quantised dtype, for example qint8; got {}.", c.op->name,
            dtype_name(t.dtype));
  const double scale = t.quant.scale;
  const auto single = static_cast<float>(scale);  // what kernels divide by
  MGE_CHECK(single > 0 && std::isfinite(single), Value, "{}: the scale of {} must be above 0 in float32; got {}.",
            c.op->name, dtype_name(t.dtype), scale);
  QuantRange range = quant_range(t.dtype);
  if (t.dtype != DType::QU8 && t.dtype != DType::QU4) range = {0, 0};  // symmetric
  if (t.quant.per_tensor()) {
    MGE_CHECK(t.quant.zero_point >= range.lo && t.quant.zero_point <= range.hi, Value,
              "{}: the zero point of {} must be from {} to {}; got {}.", c.op->name, dtype_name(t.dtype), range.lo,
              range.hi, t.quant.zero_point);
    return;
  }
  const QuantChannels& ch = t.quant.channels();
  int64_t n = ch.axis + ch.span <= s.rank ? 1 : -1;
  for (int i = ch.axis; n >= 0 && i < ch.axis + ch.span; ++i) n *= s[i];
  MGE_CHECK(n == static_cast<int64_t>(ch.scale.size()), Value,
            "{}: the dtype has {} channels along axis {}; the tensor is {}.", c.op->name, ch.scale.size(), ch.axis,
            s.str());
  for (int32_t z : ch.zero_point)
    MGE_CHECK(z >= range.lo && z <= range.hi, Value, "{}: the zero point of {} must be from {} to {}; got {}.",
              c.op->name, dtype_name(t.dtype), range.lo, range.hi, z);
}

void check_per_tensor(const InferCtx& c, size_t i) {
  MGE_CHECK(c.x(i).quant.per_tensor(), NotImplemented,
            "{}: {} is quantised per channel, which this op cannot keep apart. Take its values with "
            "astype(\"float32\") first.",
            c.op->name, c.x(i).str());
}

void check_same_quant(const InferCtx& c, size_t i) {
  if (c.x(i).quant.scale == 0 && c.x(0).quant.scale == 0) return;
  check_per_tensor(c, 0);
  MGE_CHECK(c.x(i).quant == c.x(0).quant, Type, "{}: quantised dtypes {} and {} differ. Cast one with astype.",
            c.op->name, print_qtype(c.x(0).qtype()), print_qtype(c.x(i).qtype()));
}

void keep_quant(InferCtx& c) {
  if (c.x(0).quant.scale != 0) check_per_tensor(c, 0);
  c.out[0].quant = c.x(0).quant;
}

Val dequantized(const Val& x) { return is_quant(x.dtype()) ? x.em->emit1("dequantize", {x}) : x; }

Val quantized(const Val& x, const QType& t) {
  if (x.meta().qtype() == t) return x;
  Val real = dequantized(x);
  if (!is_quant(t.dtype)) return cast(real, t.dtype);
  if (!is_float(real.dtype())) real = cast(real, DType::F32);
  return real.em->emit1("quantize", {real}, make_attrs(QuantizeAttrs{t}));
}

void register_quantize(OpRegistry& r) {
  r.op("quantize")
      .attrs<QuantizeAttrs>()
      .in("x")
      .out("q")
      .infer(infer_quantize)
      .traits(kNoGrad | kQuantised | kPacked)
      .version(2)
      .doc("round(x / scale) + zero_point, halves away from zero, kept inside the range of the dtype.");
  r.op("dequantize")
      .in("q")
      .out("x")
      .infer(infer_dequantize)
      .traits(kNoGrad | kQuantised | kPacked)
      .version(2)
      .doc("scale * (q - zero_point) as float32.");
}

}  // namespace mge
