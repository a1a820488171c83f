#include "op/quant/product.h"
#include "op/in_build.h"

#include <algorithm>
#include <cmath>

#include "op/nn.h"
#include "op/quant/numerics.h"
#include "op/quant/quantize.h"

namespace mge {
namespace {

// Largest |q - zero point|.
int64_t reach(const Meta& m) {
  const QuantRange r = quant_range(m.dtype);
  auto of = [&](int64_t z) { return std::max(r.hi - z, z - r.lo); };
  if (m.quant.per_tensor()) return of(m.quant.zero_point);
  int64_t most = 0;
  for (int32_t z : m.quant.channels().zero_point) most = std::max(most, of(z));
  return most;
}

// Operands are 8 bits or less, so that `terms` products fit 32 bits and no kernel has to look.
void check_operands(const InferCtx& c, int64_t terms) {
  for (size_t i = 0; i < 2; ++i) {
    const DType t = c.dtype(i);
    MGE_CHECK(is_quant(t) && dtype_info(t).bits <= 8, Type,
              "{}: {} must be quantised to 8 bits or less; got {}. Quantise it with astype, for example to qint8.",
              c.op->name, nn::input_name(c, i), c.x(i).str());
    check_qtype(c, c.x(i).qtype(), c.shape(i));
  }
  const int64_t most = reach(c.x(0)) * reach(c.x(1));
  MGE_CHECK(terms == 0 || most <= INT32_MAX / terms, Value,
            "{}: a sum of {} products of {} and {} can leave 32 bits. At most {} fit.", c.op->name, terms,
            dtype_name(c.dtype(0)), dtype_name(c.dtype(1)), INT32_MAX / std::max<int64_t>(most, 1));
}

// The channels of operand `i`, if any, are those of its axes axis .. axis+span.
void check_channels(const InferCtx& c, size_t i, int axis, int span) {
  const Quant& q = c.x(i).quant;
  if (q.per_tensor()) return;
  const QuantChannels& ch = q.channels();
  bool same = ch.axis == axis;
  for (int k = std::min<int>(span, ch.span); same && k < std::max<int>(span, ch.span); ++k)
    same = c.shape(i)[axis + k] == 1;  // an axis of size 1 more or less: a depthwise weight [C,1,1,kh,kw]
  MGE_CHECK(
      same, Value,
      "{}: {} is quantised per channel along axis {}; here axis {} is needed, whose channels are those of the result.",
      c.op->name, nn::input_name(c, i), ch.axis, axis);
}

// `type` of the attributes, resolved; checks the bias (input 2) against the product's scale.
void finish(InferCtx& c, const QType& type, const std::string& act, const Quant& product) {
  MGE_CHECK(act == "none" || act == "relu", Value, "{}: act must be none or relu; got \"{}\".", c.op->name, act);
  if (c.n() == 3) {
    nn::check_dtype(c, 2, DType::QI32);
    MGE_CHECK(is_product_quant(c.x(2).quant, product), Value,
              "{}: the bias must have the scale of the product, {}; got {}. Quantise it with that scale.", c.op->name,
              print_quant(product), print_quant(c.x(2).quant));
  }
  Meta& y = c.out[0];
  y.dtype = type.dtype;
  y.quant = type.quant;
  if (type.dtype == DType::F32) return;
  if (type.dtype == DType::QI32 && (type.quant.scale == 0 || is_product_quant(type.quant, product))) y.quant = product;
  check_qtype(c, y.qtype(), y.shape);
  MGE_CHECK(y.quant == product || y.quant.per_tensor(), NotImplemented,
            "{}: a result that is not qint32 has one scale for the whole tensor; got {}.", c.op->name,
            print_qtype(y.qtype()));
}

template <class A>
void infer_qconv2d(InferCtx& c) {
  constexpr bool kTransposed = A::kRole == ConvRole::InputGrad;
  const auto& at = attrs_as<A>(c.attrs);
  const Shape& w = c.shape(1);
  Shape y;
  if constexpr (kTransposed) {
    y = to_shape(at.x_shape);
    nn::check_shape_is(c, 0, conv_output(c, at, y, w), format("(the output of conv2d on x_shape {})", y.str()));
  } else {
    y = conv_output(c, at, c.shape(0), w);
  }
  // Channels of the result: of the forward convolution axis 0 (or groups and 1) of the weight, else the next axis.
  const int first = w.rank - 4, axis = kTransposed ? first + 1 : 0, span = kTransposed ? 1 : first + 1;
  const int64_t sum = kTransposed ? w[first] : w[w.rank - 3];
  check_operands(c, sum * w[w.rank - 2] * w[w.rank - 1]);
  MGE_CHECK(c.x(0).quant.per_tensor(), NotImplemented, "{}: {} must have one scale for the whole tensor; got {}.",
            c.op->name, nn::input_name(c, 0), print_quant(c.x(0).quant));
  MGE_CHECK(!kTransposed || at.groups == 1 || c.x(1).quant.per_tensor(), NotImplemented,
            "{}: a grouped transposed convolution takes a weight with one scale.", c.op->name);
  check_channels(c, 1, axis, span);
  if (c.n() == 3) nn::check_shape_is(c, 2, Shape{1, y[1], 1, 1}, "(one value per output channel)");
  c.out[0].shape = y;
  finish(c, at.type, at.act, product_quant(c.x(0).quant, c.x(1).quant, 1));
}

void infer_qmatmul(InferCtx& c) {
  const auto& at = attrs_as<QMatmulAttrs>(c.attrs);
  for (size_t i = 0; i < 2; ++i) nn::check_rank(c, i, 2, kMaxRank);
  const Shape &a = c.shape(0), &b = c.shape(1);
  const int64_t m = a[a.rank - (at.ta ? 1 : 2)], ka = a[a.rank - (at.ta ? 2 : 1)];
  const int64_t kb = b[b.rank - (at.tb ? 1 : 2)], n = b[b.rank - (at.tb ? 2 : 1)];
  MGE_CHECK(ka == kb, Value, "qmatmul: inner sizes differ, {} against {}; got a {}{}, b {}{}.", ka, kb, a.str(),
            at.ta ? " (transposed)" : "", b.str(), at.tb ? " (transposed)" : "");
  check_operands(c, ka);
  check_channels(c, 0, a.rank - (at.ta ? 1 : 2), 1);
  check_channels(c, 1, b.rank - (at.tb ? 2 : 1), 1);
  MGE_CHECK(c.x(0).quant.per_tensor() || c.x(1).quant.per_tensor(), NotImplemented,
            "qmatmul: only one operand can be quantised per channel.");
  Meta& y = c.out[0];
  y.shape = broadcast_shapes("qmatmul (batch dimensions)", Shape(a.d, static_cast<size_t>(a.rank - 2)),
                             Shape(b.d, static_cast<size_t>(b.rank - 2)));
  y.shape.push_back(m);
  y.shape.push_back(n);
  if (c.n() == 3 && !(c.shape(2) == Shape{m, 1})) nn::check_shape_is(c, 2, Shape{n}, "(columns), or one per row");
  const bool rows = !c.x(0).quant.per_tensor();
  finish(c, at.type, at.act,
         rows ? product_quant(c.x(1).quant, c.x(0).quant, y.shape.rank - 2)
              : product_quant(c.x(0).quant, c.x(1).quant, y.shape.rank - 1));
}

template <class A>
double cost_qconv2d(const InferCtx& c) {
  const auto& at = attrs_as<A>(c.attrs);
  if constexpr (A::kRole == ConvRole::InputGrad)
    return conv_geom(at, to_shape(at.x_shape), c.shape(1)).flops();
  else
    return conv_geom(at, c.shape(0), c.shape(1)).flops();
}
double cost_qmatmul(const InferCtx& c) {
  const MatmulGeom g = matmul_geom(attrs_as<QMatmulAttrs>(c.attrs), c.shape(0), c.shape(1));
  return 2.0 * static_cast<double>(g.batch.numel()) * static_cast<double>(g.m) * static_cast<double>(g.n) *
         static_cast<double>(g.k);
}

}  // namespace

Quant product_quant(const Quant& x, const Quant& w, int axis) {
  const auto one = static_cast<float>(x.scale);
  if (w.per_tensor()) return {quant::product_scale(one, static_cast<float>(w.scale)), 0, 0};
  std::vector<float> scale;
  for (float s : w.channels().scale) scale.push_back(quant::product_scale(one, s));
  return Quant::per_channel(std::move(scale), {}, axis);
}

bool is_product_quant(const Quant& q, const Quant& product) {
  auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-6 * b; };
  const size_t n = product.per_tensor() ? 1 : product.channels().scale.size();
  if (!q.per_tensor() && q.channels().scale.size() != n) return false;
  for (size_t i = 0; i < n; ++i) {
    const double want = product.per_tensor() ? product.scale : product.channels().scale[i];
    const double is = q.per_tensor() ? q.scale : q.channels().scale[i];
    const int32_t zero = q.per_tensor() ? q.zero_point : q.channels().zero_point[i];
    if (!near(is, want) || zero != 0) return false;
  }
  return true;
}

void register_quant_product(OpRegistry& r) {
  constexpr uint32_t kTraits = kComputeBound | kNoGrad | kQuantised | kPacked;
  r.op("qconv2d")
      .attrs<QConv2dAttrs>()
      .in("x", "weight")
      .opt("bias")
      .out("y")
      .infer(infer_qconv2d<QConv2dAttrs>)
      .cost(cost_qconv2d<QConv2dAttrs>)
      .traits(kTraits)
      .doc(
          "conv2d of quantised x and weight, exact in integers, plus a qint32 bias [1,O,1,1]; then act, and the "
          "result as `type`. Padding is the real number 0.");
  r.op("qconv2d_dx")
      .attrs<QConv2dDxAttrs>()
      .in("x", "weight")
      .opt("bias")
      .out("y")
      .infer(infer_qconv2d<QConv2dDxAttrs>)
      .cost(cost_qconv2d<QConv2dDxAttrs>)
      .traits(kTraits)
      .doc("The transposed convolution of quantised x and weight, of shape x_shape; bias, act and type as qconv2d.");
  r.op("qmatmul")
      .attrs<QMatmulAttrs>()
      .in("a", "b")
      .opt("bias")
      .out("y")
      .infer(infer_qmatmul)
      .cost(cost_qmatmul)
      .traits(kTraits)
      .doc("matmul of quantised a and b, exact in integers, plus a qint32 bias [N] or [M,1]; act and type as qconv2d.");
}

}  // namespace mge
