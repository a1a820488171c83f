// Convolutions in two and three dimensions, their adjoints, and those with weights or regions of their own.
#include "compat/convolution.h"

#include "op/conv/conv3d.h"
#include "op/quant/product.h"
#include "op/quant/quantize.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(Format3D, "Convolution3D", "Format", NCDHW, NDHWC)
MGE_COMPAT_ENUM(DataType3D, "Convolution3D", "DataType", FLOAT, FLOAT_IO16xC32)
MGE_COMPAT_ENUM(Nonlinearity, "BatchConvBias", "NonlineMode", IDENTITY, RELU, SIGMOID, H_SWISH)

struct ConvTyped : ConvPolicy {
  TypeParam dtype;
  static constexpr auto fields() {
    return std::tuple_cat(ConvPolicy::fields(), field_list("dtype", &ConvTyped::dtype));
  }
};
struct Conv3d : Policy {
  ConvMode mode = ConvMode::CROSS_CORRELATION;
  int64_t pad_d = 0, pad_h = 0, pad_w = 0, stride_d = 1, stride_h = 1, stride_w = 1;
  int64_t dilate_d = 1, dilate_h = 1, dilate_w = 1;
  Sparse sparse = Sparse::DENSE;
  DataType3D data_type = DataType3D::FLOAT;
  Format3D format = Format3D::NCDHW;
  static constexpr auto fields() {
    using P = Conv3d;
    return std::tuple_cat(field_list("mode", &P::mode, "pad_d", &P::pad_d, "pad_h", &P::pad_h, "pad_w", &P::pad_w,
                                     "stride_d", &P::stride_d, "stride_h", &P::stride_h, "stride_w", &P::stride_w,
                                     "dilate_d", &P::dilate_d, "dilate_h", &P::dilate_h, "dilate_w", &P::dilate_w,
                                     "sparse", &P::sparse, "data_type", &P::data_type, "format", &P::format),
                          policy_fields());
  }
};
struct ConvBias : ConvTyped {
  Nonlinearity nonlineMode = Nonlinearity::IDENTITY;
  static constexpr auto fields() {
    using P = ConvBias;
    return std::tuple_cat(field_list("nonlineMode", &P::nonlineMode, "mode", &Conv::mode, "sparse", &Conv::sparse,
                                     "format", &Conv::format, "pad_h", &Conv::pad_h, "pad_w", &Conv::pad_w, "stride_h",
                                     &Conv::stride_h, "stride_w", &Conv::stride_w, "dilate_h", &Conv::dilate_h,
                                     "dilate_w", &Conv::dilate_w, "compute_mode", &Conv::compute_mode),
                          policy_fields(), field_list("dtype", &ConvTyped::dtype));
  }
};
struct BatchConvBias : ConvTyped {
  Nonlinearity nonlineMode = Nonlinearity::IDENTITY;
  static constexpr auto fields() {
    return std::tuple_cat(field_list("nonlineMode", &BatchConvBias::nonlineMode), ConvTyped::fields());
  }
};

/// A true convolution is a cross-correlation with the kernel turned round.
Val turned(const Val& w, ConvMode mode, int spatial) {
  Val y = w;
  if (mode == ConvMode::CONVOLUTION)
    for (int i = 1; i <= spatial; ++i) y = flipped(y, w.rank() - i);
  return y;
}
void check(const char* who, const Conv3d& p) {
  MGE_CHECK(p.format == Format3D::NCDHW, NotImplemented, "{}: format must be NCDHW; got {}.", who, name_of(p.format));
}
template <class P>
int64_t groups_of(const P& p, const Val& w) {
  return p.sparse == Sparse::GROUP && w.rank() ? dim(w, 0) : 1;
}

Val convolved(const char* who, const Conv& p, const Val& x, const Val& w) {
  check_format(who, p);
  return emit("conv2d", {x, turned(w, p.mode, 2)}, p.attrs(groups_of(p, w)));
}
void conv2d(Emitter&, const ConvPolicy& p, In in, Out& out) {
  out.push_back(convolved("Convolution", p, in[0], in[1]));
}

Conv3dAttrs attrs_of(const Conv3d& p, int64_t groups) {
  return {
      {p.stride_d, p.stride_h, p.stride_w}, {p.pad_d, p.pad_h, p.pad_w}, {p.dilate_d, p.dilate_h, p.dilate_w}, groups};
}

void conv3d(Emitter&, const Conv3d& p, In in, Out& out) {
  check("Convolution3D", p);
  out.push_back(emit("conv3d", {in[0], turned(in[1], p.mode, 3)}, attrs_of(p, groups_of(p, in[1]))));
}

/// The shape of the input of a convolution whose output is dy. Given sizes may exceed the least by less than a stride.
template <size_t D>
SizeValues data_shape(const char* who, In in, const ConvAttrs<D>& at) {
  const Shape w = in[0].shape(), dy = now(in[1]);
  constexpr int n = static_cast<int>(D);
  const bool grouped = w.rank == n + 3;
  MGE_CHECK(dy.rank == n + 2 && (w.rank == n + 2 || grouped), Value,
            "{}: needs a weight of {} or {} dimensions and a gradient of {}; got {} and {}.", who, n + 2, n + 3, n + 2,
            w.str(), dy.str());
  Ints shape{dy[0], w[w.rank - n - 1] * at.groups};
  // Python gives the sizes; files give a tensor of that shape, whose values do not matter.
  Ints given;
  Val sizes;  // of the given ones, where they may be others later
  if (in.size() > 2 && in[2].rank() == 1) {
    const SizeValues s = sizes_of(who, "the output shape", in[2]);
    given = s.now;
    sizes = s.operand;
  } else if (in.size() > 2) {
    given = to_ints(now(in[2]));
    sizes = in[2].em->size_operand(in[2]);
  }
  MGE_CHECK(given.empty() || given.size() >= static_cast<size_t>(n), Value, "{}: the output shape needs {} sizes.", who,
            n);
  for (int i = 0; i < n; ++i) {
    const size_t k = static_cast<size_t>(i);
    const int64_t stride = at.stride[k];
    const int64_t least = conv_inputs(dy[2 + i], w[w.rank - n + i], stride, at.pad[k], at.dilate[k]);
    const int64_t size = given.empty() ? least : given[given.size() - static_cast<size_t>(n) + k];
    MGE_CHECK(size >= least && size < least + stride, Assertion,
              "{}: size {} of axis {} does not fit: a gradient {} comes from {} to {}.", who, size, 2 + i, dy.str(),
              least, least + stride - 1);
    shape.push_back(size);
  }
  const Val batch = in[1].em->size_operand(in[1]);
  if (!batch && !sizes) return {shape, {}};
  Val space;
  if (given.empty()) {
    std::vector<int64_t> stride(at.stride.begin(), at.stride.end()), rest;
    for (int i = 0; i < n; ++i) {
      const size_t k = static_cast<size_t>(i);
      rest.push_back(conv_inputs(1, w[w.rank - n + i], at.stride[k], at.pad[k], at.dilate[k]) - at.stride[k]);
    }
    space = slice(batch, 0, 2, 2 + n) * int_table(batch, stride, Shape{n}) + int_table(batch, rest, Shape{n});
  } else {
    const auto count = static_cast<int64_t>(given.size());
    space = sizes ? slice(cast(sizes, DType::I32), 0, count - n, count)
                  : int_table(in[1], {shape.begin() + 2, shape.end()}, Shape{n});
  }
  const Val parts[] = {batch ? slice(batch, 0, 0, 1) : int_table(in[1], {shape.begin(), 1}, Shape{1}),
                       int_table(in[1], {shape.begin() + 1, 1}, Shape{1}), space};
  return {shape, concat(parts, 0)};
}
void conv2d_backward(Emitter&, const ConvTyped& p, In in, Out& out) {
  check_format("ConvolutionBackwardData", p);
  const Conv2dAttrs attrs = p.attrs(groups_of(p, in[0]));
  const SizeValues shape = data_shape("ConvolutionBackwardData", in, attrs);
  const Val y =
      emit_sized("conv2d_dx", {in[1], turned(in[0], p.mode, 2)}, Conv2dDxAttrs{attrs, shape.now}, "x_shape", shape);
  out.push_back(converted(y, p.dtype));
}
void conv3d_backward(Emitter&, const Conv3d& p, In in, Out& out) {
  check("Convolution3DBackwardData", p);
  const Conv3dAttrs attrs = attrs_of(p, groups_of(p, in[0]));
  const SizeValues shape = data_shape("Convolution3DBackwardData", in, attrs);
  out.push_back(
      emit_sized("conv3d_dx", {in[1], turned(in[0], p.mode, 3)}, Conv3dDxAttrs{attrs, shape.now}, "x_shape", shape));
}

// x, the gradient of the output, the weight, whose values do not matter.
void conv2d_backward_filter(Emitter&, const ConvPolicy& p, In in, Out& out) {
  check_format("ConvolutionBackwardFilter", p);
  const Shape w = in[2].shape();
  const Val g = emit("conv2d_dw", {in[0], in[1]}, Conv2dDwAttrs{p.attrs(groups_of(p, in[2])), to_ints(w)});
  out.push_back(turned(g, p.mode, 2));
}

// A weight of its own at every position: (groups, OH, OW, C/groups, kh, kw, O/groups).
void group_local(Emitter&, const Conv& p, In in, Out& out) {
  check_format("GroupLocal", p);
  const Val &x = in[0], &weight = in[1];
  const Shape w = weight.shape();
  MGE_CHECK(w.rank == 7, Value, "GroupLocal: the weight needs 7 dimensions (g, OH, OW, I, kh, kw, O); got {}.",
            w.str());
  const int64_t g = w[0], oh = w[1], ow = w[2], c = w[3], kh = w[4], kw = w[5];
  const Val seen = sliding_window("GroupLocal", x, p.window(kh, kw));
  MGE_CHECK(dim(seen, 1) == g * c && dim(seen, 2) == oh && dim(seen, 3) == ow, Value,
            "GroupLocal: the weight {} does not fit windows {} of {}.", w.str(), now(seen).str(), now(x).str());
  const int64_t depth = c * kh * kw;  // of any batch: -1
  const Val cols = transpose(shaped(seen, {-1, g, c, oh, ow, kh * kw}), {1, 3, 4, 0, 2, 5});
  const Val y = matmul(shaped(cols, {g, oh, ow, -1, depth}), shaped(weight, {g, oh, ow, depth, w[6]}), false, false);
  out.push_back(shaped(transpose(y, {3, 0, 4, 1, 2}), {-1, g * w[6], oh, ow}));
}

// Only positions with equal region numbers are joined.
struct Regions {
  Val same;  // [N,1,OH,OW,kh,kw]
  Shape weight;
  int64_t n, groups, depth, oh, ow;
};
Regions regions(const char* who, const Conv& p, const Val& weight, const Val& rin, const Val& rout, int64_t channels) {
  check_format(who, p);
  const Shape w = weight.shape(), ri = now(rin), ro = now(rout);
  const int64_t groups = groups_of(p, weight);
  MGE_CHECK(
      w.rank == 5 && w[0] == groups && (channels < 0 || w[2] * groups == channels), Value,
      "{}: the weight must be (groups, O/groups, C/groups, kh, kw) for {} groups of an input (N, C, H, W); got {}.",
      who, groups, w.str());
  MGE_CHECK(ri.rank == 3 && ro.rank == 3, Value, "{}: regions need 3 dimensions (N, H, W); got {} and {}.", who,
            ri.str(), ro.str());
  // Padding is 0 in the input, so the region it gets does not matter.
  const Val seen = sliding_window(who, expand(cast(rin, DType::I32), {1}), p.window(w[3], w[4]));
  const int64_t oh = dim(seen, 2), ow = dim(seen, 3);
  MGE_CHECK(ro == (Shape{ri[0], oh, ow}), Value, "{}: the output regions must be {}; got {}.", who,
            (Shape{ri[0], oh, ow}).str(), ro.str());
  const Val same = binary("eq", seen, expand(cast(rout, DType::I32), {1, -1, -2}));
  return {same, w, ri[0], groups, w[2] * w[3] * w[4], oh, ow};
}
void region_conv(Emitter&, const Conv& p, In in, Out& out) {
  const char* who = "RegionRestrictedConvolution";
  const Shape x = now(in[0]), ri = now(in[2]);
  MGE_CHECK(x.rank == 4, Value, "{}: the input needs 4 dimensions (N, C, H, W); got {}.", who, x.str());
  const Regions r = regions(who, p, in[1], in[2], in[3], dim(in[0], 1));
  MGE_CHECK(ri == (Shape{x[0], x[2], x[3]}), Value, "{}: the input regions must be {}; got {}.", who,
            (Shape{x[0], x[2], x[3]}).str(), ri.str());
  const int64_t kh = r.weight[3], kw = r.weight[4], taps = kh * kw;
  const Val joined = where0(r.same, sliding_window(who, in[0], p.window(kh, kw)));
  const Val cols = transpose(shaped(joined, {-1, x[1], r.oh * r.ow, taps}), {0, 1, 3, 2});
  const Val y = matmul(shaped(in[1], {r.groups, r.weight[1], r.depth}),
                       shaped(cols, {-1, r.groups, r.depth, r.oh * r.ow}), false, false);
  out.push_back(shaped(y, {-1, r.groups * r.weight[1], r.oh, r.ow}));
}
// Linear in the input, so the adjoint: the same steps backwards.
void region_conv_backward(Emitter&, const Conv& p, In in, Out& out) {
  const char* who = "RegionRestrictedConvolutionBackwardData";
  const Regions r = regions(who, p, in[0], in[2], in[3], -1);
  MGE_CHECK(in[1].rank() == 4, Value, "{}: the gradient needs 4 dimensions (N, C, H, W); got {}.", who,
            now(in[1]).str());
  const Shape dy{now(in[1])[0], dim(in[1], 1), dim(in[1], 2), dim(in[1], 3)};
  const int64_t kh = r.weight[3], kw = r.weight[4], channels = r.weight[2] * r.groups;
  MGE_CHECK(dy == (Shape{r.n, r.weight[1] * r.groups, r.oh, r.ow}), Value, "{}: the gradient must be {}; got {}.", who,
            (Shape{r.n, r.weight[1] * r.groups, r.oh, r.ow}).str(), dy.str());
  const Val cols = matmul(shaped(in[0], {r.groups, r.weight[1], r.depth}),
                          shaped(in[1], {-1, r.groups, r.weight[1], r.oh * r.ow}), true, false);
  const Val taps = transpose(shaped(cols, {-1, channels, kh * kw, r.oh * r.ow}), {0, 1, 3, 2});
  const Val joined = where0(r.same, shaped(taps, {-1, channels, r.oh, r.ow, kh, kw}));
  out.push_back(add_windows(who, joined, dim(in[2], 1), dim(in[2], 2), p.window(kh, kw)));
}

// act(y + z) as `dtype`; y is real, or quantised where it is a sum that nothing is added to.
Val activated(const Val& y, In extra, Nonlinearity mode, const TypeParam& dtype) {
  static const char* const kOps[] = {nullptr, "relu", "sigmoid", "hswish"};
  const char* op = kOps[static_cast<int>(mode)];
  Val v = y;
  for (auto& z : extra) v = dequantized(v) + dequantized(z);
  return converted(op ? unary(op, dequantized(v)) : v, dtype);
}

// On quantised operands the sum is an integer, to which the bias is added as one.
Val integer_conv(const char* who, const Conv& p, In in, int64_t groups, Nonlinearity mode, const TypeParam& dtype) {
  check_format(who, p);
  QConv2dAttrs at;
  static_cast<Conv2dAttrs&>(at) = p.attrs(groups);
  Out operands{in[0], turned(in[1], p.mode, 2)};
  if (in.size() > 2) {
    const Quant product = product_quant(in[0].meta().quant, in[1].meta().quant, 1);
    operands.push_back(is_quant(in[2].dtype()) ? in[2] : quantized(in[2], {DType::QI32, product}));
  }
  const bool simple = in.size() <= 3 && mode <= Nonlinearity::RELU;  // the kernel does it all
  if (simple && dtype.dtype) at.type = {*dtype.dtype, dtype.quant};
  if (simple && mode == Nonlinearity::RELU) at.act = "relu";
  if (!simple) at.type = {DType::F32, {}};
  const Val y = emit_all(*in[0].em, "qconv2d", {operands.data(), operands.size()}, make_attrs(at))[0];
  return simple ? y : activated(y, in.subspan(std::min<size_t>(in.size(), 3)), mode, dtype);
}

Val biased_conv(const char* who, const Conv& p, In in, int64_t groups, Nonlinearity mode, const TypeParam& dtype) {
  if (is_quant(in[0].dtype())) return integer_conv(who, p, in, groups, mode, dtype);
  MGE_CHECK(is_float(in[0].dtype()), NotImplemented,
            "{}: takes floating-point tensors; got {}. Quantised ones work too.", who, dtype_name(in[0].dtype()));
  check_format(who, p);
  return activated(emit("conv2d", {in[0], turned(in[1], p.mode, 2)}, p.attrs(groups)), in.subspan(2), mode, dtype);
}

void conv_bias(Emitter&, const ConvBias& p, In in, Out& out) {
  out.push_back(biased_conv("ConvBias", p, in, groups_of(p, in[1]), p.nonlineMode, p.dtype));
}

// A weight per batch element, (N, [G,] O, I, kh, kw): the batch becomes groups.
void batch_conv_bias(Emitter&, const BatchConvBias& p, In in, Out& out) {
  const Shape x = in[0].shape(), w = in[1].shape();
  const int grouped = p.sparse == Sparse::GROUP ? 1 : 0;
  MGE_CHECK(x.rank == 4 && w.rank == 5 + grouped && w[0] == x[0], Value,
            "BatchConvBias: needs x [N,C,H,W] and a weight [N,{}O,I,kh,kw]; got {} and {}.", grouped ? "groups," : "",
            x.str(), w.str());
  const int64_t n = x[0], groups = n * (grouped ? w[1] : 1), o = grouped ? w[1] * w[2] : w[1];
  Out operands{shaped(in[0], {1, n * x[1], x[2], x[3]}),
               shaped(in[1], {groups, w[1 + grouped], w[2 + grouped], w[3 + grouped], w[4 + grouped]})};
  for (size_t i = 2; i < in.size(); ++i) {
    const Shape s = in[i].shape();
    const bool bias = s == Shape{1, o, 1, 1};
    Val e = bias ? broadcast_to(in[i], Shape{n, o, 1, 1}) : in[i];
    operands.push_back(shaped(e, {1, n * o, bias ? 1 : s[2], bias ? 1 : s[3]}));
  }
  const Val y = biased_conv("BatchConvBias", p, {operands.data(), operands.size()}, groups, p.nonlineMode, p.dtype);
  out.push_back(shaped(y, {n, o, y.shape()[2], y.shape()[3]}));
}

}  // namespace

void check_format(const char* who, const Conv& p) {
  MGE_CHECK(p.format == Format::NCHW, NotImplemented, "{}: format must be NCHW; got {}.", who, name_of(p.format));
}

void add_convolution(Table& t) {
  t.add<ConvPolicy, conv2d>("Convolution", {2, 2}, "ConvolutionV2@1 Convolution@2");
  t.add<ConvTyped, conv2d_backward>("ConvolutionBackwardData", {2, 3},
                                    "ConvolutionBackwardDataV2@1 ConvolutionBackwardData@2");
  t.add_file_type<ConvPolicy, conv2d_backward_filter>("ConvolutionBackwardFilter", {3, 3},
                                                      "ConvolutionBackwardFilterV2@1 ConvolutionBackwardFilter@2");
  t.add<Conv3d, conv3d>("Convolution3D", {2, 2}, "Convolution3D@1 Convolution3D@2");
  t.add<Conv3d, conv3d_backward>("Convolution3DBackwardData", {2, 3},
                                 "Convolution3DBackwardData@1 Convolution3DBackwardData@2");
  t.add<Conv, group_local>("GroupLocal", {2, 2}, "GroupLocalV2@1");
  t.leave_uncast();
  t.add<Conv, region_conv>("RegionRestrictedConvolution", {4, 4}, "RegionRestrictedConvolution@1");
  t.leave_uncast();
  t.add<Conv, region_conv_backward>("RegionRestrictedConvolutionBackwardData", {4, 5},
                                    "RegionRestrictedConvolutionBackwardData@1");
  t.leave_uncast();
  t.add<ConvBias, conv_bias>("ConvBias", {2, 4}, "ConvBiasForwardV4@1 ConvBiasForward@2");
  t.add<BatchConvBias, batch_conv_bias>("BatchConvBias", {2, 4}, "BatchConvBiasForwardV1@1 BatchConvBiasForward@2");
}

}  // namespace mge::compat
