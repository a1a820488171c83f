#include "op/quant/real.h"

#include "op/elementwise/typecvt.h"
#include "op/quant/product.h"
#include "op/quant/quantize.h"

namespace mge {
namespace {

bool is_quantised(const Val& v) { return v && is_quant(v.dtype()); }

/// A bias beside an integer product, quantised at its scale.
Val product_bias(const Val& bias, const Quant& product) {
  return is_quantised(bias) ? bias : quantized(bias, {DType::QI32, product});
}

template <class Q, class A>
Attrs with_sums(const AttrsBase* attrs) {
  Q q;
  static_cast<A&>(q) = attrs_as<A>(attrs);
  return make_attrs(std::move(q));
}

// Products of two quantised operands are summed as integers.
bool emit_product(Emitter& em, const OpDef& op, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  struct Row {
    const char *real, *integer;
    Attrs (*attrs)(const AttrsBase*);
    int axis;  // of the channels of the result, from its end
  };
  static constexpr Row kRows[] = {{"conv2d", "qconv2d", with_sums<QConv2dAttrs, Conv2dAttrs>, 3},
                                  {"conv2d_dx", "qconv2d_dx", with_sums<QConv2dDxAttrs, Conv2dDxAttrs>, 3},
                                  {"matmul", "qmatmul", with_sums<QMatmulAttrs, MatmulAttrs>, 1}};
  for (const Row& row : kRows) {
    if (op.name != row.real || !is_quantised(in[0]) || !is_quantised(in[1])) continue;
    const OpDef& q = OpRegistry::global().get(row.integer);
    SmallVec<Val, 3> ins(in.begin(), in.end());
    if (in.size() == 3) {
      const int rank = row.axis == 3 ? 4 : 1;  // of the bias
      ins[2] = product_bias(in[2], product_quant(in[0].meta().quant, in[1].meta().quant, rank - row.axis));
    }
    em.emit(q, row.attrs(attrs), {ins.data(), ins.size()}, out);
    return true;
  }
  return false;
}

// Weighted means of elements: the scale would go in and out again, so they are taken of the integers, whose halves are
// exact and round away from zero.
bool emit_mean(Emitter& em, const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) {
  if (op.name != "avg_pool2d" && op.name != "resize") return false;
  if (!is_quantised(in[0]) || !in[0].meta().quant.per_tensor()) return false;
  const QType like = in[0].meta().qtype();
  const double scale = static_cast<float>(like.quant.scale);
  SmallVec<Val, 3> ins(in.begin(), in.end());
  ins[0] = unary("round", dequantized(in[0]) / scale);
  em.emit(op, attrs, {ins.data(), ins.size()}, out);
  out[0] = quantized(unary("round", out[0]) * scale, like);
  return true;
}

}  // namespace

void emit_on_quantised(Emitter& em, const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) {
  if (emit_product(em, op, attrs.get(), in, out) || emit_mean(em, op, attrs, in, out)) return;
  QType like;  // of the quantised inputs, which must agree
  for (auto& v : in) {
    if (!is_quantised(v)) continue;
    if (like.quant.scale == 0) like = v.meta().qtype();
    MGE_CHECK(v.meta().qtype() == like, Type, "{}: quantised dtypes {} and {} differ. Cast one with astype.", op.name,
              print_qtype(like), print_qtype(v.meta().qtype()));
  }
  const bool widen = op.is(kQuantised);  // takes 8 bits where these are 4
  const QType wide{unpacked(like.dtype), like.quant};
  SmallVec<Val, 6> ins;
  for (auto& v : in) ins.push_back(!is_quantised(v) ? v : widen ? quantized(v, wide) : dequantized(v));
  em.emit(op, attrs, {ins.data(), ins.size()}, out);
  if (op.name == "typecvt") return;  // asked for this dtype
  for (auto& v : out) {
    if (widen ? v.meta().qtype() == wide : v.dtype() == DType::F32) v = quantized(v, like);
  }
}

}  // namespace mge
