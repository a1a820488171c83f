// Between real numbers and quantised dtypes: real = scale * (q - zero_point). The formulas are in numerics.h.
#pragma once
#include "op/emitter.h"

namespace mge {

struct QuantizeAttrs {
  QType type;
  static constexpr auto fields() { return field_list("type", &QuantizeAttrs::type); }
};

/// `t` names a quantised dtype with a scale, one per channel of `s` where it has several; an error otherwise.
void check_qtype(const InferCtx& c, const QType& t, const Shape& s);
/// The quantised input `i` has one scale for all of it: what moves single elements cannot keep channels apart.
void check_per_tensor(const InferCtx& c, size_t i);

/// Input `i` is quantised as input 0 is, per tensor, or neither is.
void check_same_quant(const InferCtx& c, size_t i);

/// Output 0 is made of elements of input 0, quantised per tensor or not at all.
void keep_quant(InferCtx& c);

/// x as real numbers: float32, or x itself where it is not quantised.
Val dequantized(const Val& x);
/// x, real or quantised, as `t`, quantised or not. By way of float32; 4 and 8 bits of one quantisation are exact.
Val quantized(const Val& x, const QType& t);

}  // namespace mge
