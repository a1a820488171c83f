#include "op/pool/pool.h"

#include "op/compose.h"
#include "op/conv/conv_geom.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

template <class A>
Shape output_shape(const InferCtx& c, const A& at, const Shape& x) {
  const std::string& op = c.op->name;
  nn::Pair k = nn::pair_of(c, "kernel", at.kernel, 1), p = nn::pair_of(c, "pad", at.pad, 0);
  if (!at.stride.empty()) nn::pair_of(c, "stride", at.stride, 1);
  MGE_CHECK(x.rank == 4, Value, "{}: input must be [N,C,H,W]; got {}.", op, x.str());
  MGE_CHECK(
      p.h < k.h && p.w < k.w, Value,
      "{}: pad must be smaller than the kernel, or a window would hold padding only; got kernel {}x{}, pad {}x{}.", op,
      k.h, k.w, p.h, p.w);
  MGE_CHECK(x[2] >= 1 && x[3] >= 1 && k.h <= x[2] + 2 * p.h && k.w <= x[3] + 2 * p.w, Value,
            "{}: window {}x{} is larger than the padded input {}x{}; input {}. Use a smaller kernel.", op, k.h, k.w,
            x[2] + 2 * p.h, x[3] + 2 * p.w, x.str());
  PoolGeom g = pool_geom(at, x);
  return Shape{g.n, g.c, g.oh, g.ow};
}

void infer_max_pool(InferCtx& c) {
  nn::check_float(c, 0);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = output_shape(c, attrs_as<PoolAttrs>(c.attrs), c.shape(0));
}

void infer_max_pool_bwd(InferCtx& c) {
  for (size_t i = 0; i < 3; ++i) nn::check_float(c, i);
  Shape y = output_shape(c, attrs_as<PoolAttrs>(c.attrs), c.shape(0));
  for (size_t i : {1, 2}) nn::check_shape_is(c, i, y, format("(max_pool2d of x {})", c.shape(0).str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

void infer_max_pool_take(InferCtx& c) {
  for (size_t i = 0; i < 3; ++i) nn::check_float(c, i);
  Shape y = output_shape(c, attrs_as<PoolAttrs>(c.attrs), c.shape(0));
  nn::check_shape_is(c, 1, y, format("(max_pool2d of x {})", c.shape(0).str()));
  nn::check_shape_is(c, 2, c.shape(0), "(that of x)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = y;
}

void infer_avg_pool(InferCtx& c) {
  nn::check_float(c, 0);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = output_shape(c, attrs_as<AvgPoolAttrs>(c.attrs), c.shape(0));
}

void infer_avg_pool_bwd(InferCtx& c) {
  const auto& at = attrs_as<AvgPoolBwdAttrs>(c.attrs);
  nn::check_float(c, 0);
  Shape x = to_shape(at.x_shape);
  check_shape("avg_pool2d_bwd", x);
  nn::check_shape_is(c, 0, output_shape(c, at, x), format("(avg_pool2d of x_shape {})", x.str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}

// Over the places of the window from the last to the first, so that the first maximum is what stays.
void decompose_max_pool_take(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  PoolGeom g = pool_geom(attrs_as<PoolAttrs>(attrs), in[0].shape());
  auto room = [&](const Val& v, double fill) { return padded(padded(v, 2, g.ph, g.ph, fill), 3, g.pw, g.pw, fill); };
  Val x = room(in[0], 0), v = room(in[2], 0), real = room(filled(in[0], 1, DType::Bool, in[0].shape()), 0);
  Val y = filled(v, 0, v.dtype(), in[1].shape());
  for (int64_t i = g.kh - 1; i >= 0; --i)
    for (int64_t j = g.kw - 1; j >= 0; --j) {
      auto at = [&](const Val& t) {
        Val rows = slice_axis(t, 2, i, i + (g.oh - 1) * g.sh + 1, g.sh);
        return slice_axis(rows, 3, j, j + (g.ow - 1) * g.sw + 1, g.sw);
      };
      Val here = at(x), largest = binary("logical_or", binary("eq", here, in[1]), unary("isnan", here));
      y = select(binary("logical_and", largest, at(real)), at(v), y);
    }
  out[0] = y;
}

}  // namespace

template <class A>
PoolGeom pool_geom(const A& at, const Shape& x) {
  nn::Pair k = nn::pair_of(at.kernel), s = at.stride.empty() ? k : nn::pair_of(at.stride), p = nn::pair_of(at.pad);
  PoolGeom g{x[0], x[1], x[2], x[3], 0, 0, k.h, k.w, s.h, s.w, p.h, p.w};
  g.oh = conv_outputs(g.h, g.kh, g.sh, g.ph, 1);
  g.ow = conv_outputs(g.w, g.kw, g.sw, g.pw, 1);
  return g;
}
template PoolGeom pool_geom(const PoolAttrs&, const Shape&);
template PoolGeom pool_geom(const AvgPoolAttrs&, const Shape&);
template PoolGeom pool_geom(const AvgPoolBwdAttrs&, const Shape&);

void register_pool(OpRegistry& r) {
  r.op("max_pool2d")
      .attrs<PoolAttrs>()
      .in("x")
      .out("y")
      .infer(infer_max_pool)
      .keeps_format(KeepsFormat::First)
      .promote(Promote::Float)
      .doc("Largest value of each window; an empty stride means the kernel size; NaN wins.");
  r.op("max_pool2d_bwd")
      .attrs<PoolAttrs>()
      .in("x", "y", "gy")
      .out("gx")
      .infer(infer_max_pool_bwd)
      .promote(Promote::Float)
      .doc("Sends gy to the first maximum of each window.");
  r.op("max_pool2d_take")
      .attrs<PoolAttrs>()
      .in("x", "y", "v")
      .out("y2")
      .infer(infer_max_pool_take)
      .decompose(decompose_max_pool_take)
      .promote(Promote::Float)
      .doc("Picks v where x has the first maximum of each window: the adjoint of max_pool2d_bwd in gy.");
  r.op("avg_pool2d")
      .attrs<AvgPoolAttrs>()
      .in("x")
      .out("y")
      .infer(infer_avg_pool)
      .keeps_format(KeepsFormat::First)
      .promote(Promote::Float)
      .doc("Mean of each window, over its real elements or, with include_pad, over the whole window.");
  r.op("avg_pool2d_bwd")
      .attrs<AvgPoolBwdAttrs>()
      .in("gy")
      .out("gx")
      .infer(infer_avg_pool_bwd)
      .promote(Promote::Float)
      .doc("Adjoint of avg_pool2d, with a result of shape x_shape.");
}

}  // namespace mge
