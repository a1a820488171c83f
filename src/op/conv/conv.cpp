#include "op/conv/conv.h"

#include <array>

#include "op/conv/conv2d.h"
#include "op/conv/conv3d.h"
#include "op/nn.h"

namespace mge {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;  // of a weight's dimensions: keeps the size arithmetic far from overflow

struct Names {
  const char *x, *weight, *grouped;
};
constexpr Names kNames[] = {
    {"[N,C,H,W]", "[O,C/groups,kh,kw]", "[groups,O/groups,C/groups,kh,kw]"},
    {"[N,C,D,H,W]", "[O,C/groups,kd,kh,kw]", "[groups,O/groups,C/groups,kd,kh,kw]"},
};

int64_t of_axis(const Ints& v, size_t i) { return v[v.size() == 1 ? 0 : i]; }

// "3x3"
template <size_t D>
std::string sizes(const std::array<int64_t, D>& v) {
  std::string s;
  for (int64_t i : v) s += format("{}{}", s.empty() ? "" : "x", i);
  return s;
}

template <size_t D>
void check_attrs(const InferCtx& c, const ConvAttrs<D>& at) {
  MGE_CHECK(at.groups >= 1, Value, "{}: groups must be at least 1; got {}.", c.op->name, at.groups);
  MGE_CHECK(at.groups < kMost, Value, "{}: groups is too large; got {}.", c.op->name, at.groups);
  nn::check_axes(c, "stride", at.stride, D, 1);
  nn::check_axes(c, "pad", at.pad, D, 0);
  nn::check_axes(c, "dilate", at.dilate, D, 1);
}

}  // namespace

template <size_t D>
ConvGeom conv_geom(const ConvAttrs<D>& at, const Shape& x, const Shape& w) {
  struct Axis {
    int64_t ConvGeom::*in, ConvGeom::*out, ConvGeom::*kernel, ConvGeom::*stride, ConvGeom::*pad, ConvGeom::*dilate;
  };
  using G = ConvGeom;
  static constexpr Axis kAxes[] = {{&G::d, &G::od, &G::kd, &G::sd, &G::pd, &G::dd},
                                   {&G::h, &G::oh, &G::kh, &G::sh, &G::ph, &G::dh},
                                   {&G::w, &G::ow, &G::kw, &G::sw, &G::pw, &G::dw}};
  constexpr int kRank = static_cast<int>(D);
  ConvGeom g;
  g.n = x[0], g.c = x[1], g.groups = at.groups;
  g.o = w.rank == kRank + 3 ? w[0] * w[1] : w[0];
  for (size_t i = 0; i < D; ++i) {
    const Axis& a = kAxes[3 - D + i];
    g.*a.in = x[2 + static_cast<int>(i)], g.*a.kernel = w[w.rank - kRank + static_cast<int>(i)];
    g.*a.stride = of_axis(at.stride, i), g.*a.pad = of_axis(at.pad, i), g.*a.dilate = of_axis(at.dilate, i);
    g.*a.out = conv_outputs(g.*a.in, g.*a.kernel, g.*a.stride, g.*a.pad, g.*a.dilate);
  }
  return g;
}

template <size_t D>
Shape conv_output(const InferCtx& c, const ConvAttrs<D>& at, const Shape& x, const Shape& w) {
  constexpr int kRank = static_cast<int>(D);
  constexpr const Names& names = kNames[D - 2];
  const std::string& op = c.op->name;
  check_attrs(c, at);
  MGE_CHECK(x.rank == kRank + 2, Value, "{}: input must be {}; got {}.", op, names.x, x.str());
  MGE_CHECK(w.rank == kRank + 2 || w.rank == kRank + 3, Value, "{}: weight must be {} or {}; got {}.", op, names.weight,
            names.grouped, w.str());
  for (const Shape* s : {&x, &w}) check_shape(op.c_str(), *s);  // they may come from attributes
  for (int64_t d : w) MGE_CHECK(d < kMost, Value, "{}: a dimension of weight {} is too large.", op, w.str());
  const bool grouped = w.rank == kRank + 3;
  if (grouped)
    MGE_CHECK(w[0] == at.groups, Value,
              "{}: weight {} is laid out for {} groups but groups is {}. groups={} would match.", op, w.str(), w[0],
              at.groups, w[0]);
  const int64_t o = grouped ? w[0] * w[1] : w[0], cg = w[w.rank - kRank - 1];
  if (x[1] != cg * at.groups) {
    const int64_t fit = cg > 0 && x[1] % cg == 0 ? x[1] / cg : 0;
    const bool would = !grouped && fit >= 1 && o % fit == 0;
    fail(ErrorKind::Value,
         "{}: input has {} channels but weight expects {} (weight.shape[{}] {} x groups {}); input {}, weight {}.{}",
         op, x[1], cg * at.groups, w.rank - kRank - 1, cg, at.groups, x.str(), w.str(),
         would ? format(" groups={} would match.", fit) : "");
  }
  MGE_CHECK(o % at.groups == 0, Value, "{}: {} output channels cannot be split into {} groups; weight {}.", op, o,
            at.groups, w.str());
  Shape y{x[0], o};
  std::array<int64_t, D> kernel, reach, room;
  bool fits = true;
  for (size_t i = 0; i < D; ++i) {
    kernel[i] = w[w.rank - kRank + static_cast<int>(i)];
    MGE_CHECK(kernel[i] >= 1, Value, "{}: the kernel is empty; weight {}.", op, w.str());
    const int64_t in = x[2 + static_cast<int>(i)], pad = of_axis(at.pad, i), dilate = of_axis(at.dilate, i);
    reach[i] = dilate * (kernel[i] - 1) + 1, room[i] = in + 2 * pad;
    fits = fits && reach[i] <= room[i];
    y.push_back(conv_outputs(in, kernel[i], of_axis(at.stride, i), pad, dilate));
  }
  MGE_CHECK(fits, Value,
            "{}: kernel {} (dilated {}) is larger than the padded input {}; input {}, weight {}. "
            "Raise the padding or use a smaller kernel.",
            op, sizes(kernel), sizes(reach), sizes(room), x.str(), w.str());
  return y;
}

namespace {

// x and weight of the convolution that a call of role A belongs to.
template <class A>
std::pair<Shape, Shape> operands(const A& at, const InferCtx& c) {
  if constexpr (A::kRole == ConvRole::InputGrad)
    return {to_shape(at.x_shape), c.shape(1)};
  else if constexpr (A::kRole == ConvRole::WeightGrad)
    return {c.shape(0), to_shape(at.w_shape)};
  else
    return {c.shape(0), c.shape(1)};
}

}  // namespace

template <class A>
void infer_conv(InferCtx& c) {
  const auto& at = attrs_as<A>(c.attrs);
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  const auto [x, w] = operands(at, c);
  const Shape y = conv_output(c, at, x, w);
  const char* forward = ConvAttrs<A::kAxes>::kOp;
  c.out[0].dtype = c.dtype(0);
  if constexpr (A::kRole == ConvRole::InputGrad) {
    nn::check_shape_is(c, 0, y, format("(the output of {} on x_shape {})", forward, x.str()));
    c.out[0].shape = x;
  } else if constexpr (A::kRole == ConvRole::WeightGrad) {
    nn::check_shape_is(c, 1, y, format("(the output of {} on x {} and w_shape {})", forward, x.str(), w.str()));
    c.out[0].shape = w;
  } else {
    if (c.n() == 3) nn::check_shape_is(c, 2, Shape{1, y[1], 1, 1}, "(one value per output channel)");
    c.out[0].shape = y;
  }
}

template <class A>
double cost_conv(const InferCtx& c) {
  const auto& at = attrs_as<A>(c.attrs);
  const auto [x, w] = operands(at, c);
  return conv_geom(at, x, w).flops();
}

template ConvGeom conv_geom(const ConvAttrs<2>&, const Shape&, const Shape&);
template ConvGeom conv_geom(const ConvAttrs<3>&, const Shape&, const Shape&);
template Shape conv_output(const InferCtx&, const ConvAttrs<2>&, const Shape&, const Shape&);
template Shape conv_output(const InferCtx&, const ConvAttrs<3>&, const Shape&, const Shape&);
#define MGE_CONV(A)                       \
  template void infer_conv<A>(InferCtx&); \
  template double cost_conv<A>(const InferCtx&);
MGE_CONV(Conv2dAttrs)
MGE_CONV(Conv2dDxAttrs)
MGE_CONV(Conv2dDwAttrs)
MGE_CONV(Conv3dAttrs)
MGE_CONV(Conv3dDxAttrs)
MGE_CONV(Conv3dDwAttrs)
#undef MGE_CONV
template double cost_conv<Conv2dFusedAttrs>(const InferCtx&);

}  // namespace mge
