#include "op/index/multi_index.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/quant/quantize.h"

namespace mge {

MultiIndexGeom multi_index_geom(const char* who, const MultiIndexAttrs& at, const Shape& x,
                                std::span<const Shape> indices) {
  MGE_CHECK(!indices.empty() && indices.size() == at.axes.size(), Value,
            "{}: needs one index for each of the axes {}; got {} indices.", who, print_attr(at.axes), indices.size());
  bool indexed[kMaxRank] = {};
  for (int64_t a : at.axes) {
    MGE_CHECK(a >= 0 && a < x.rank && !indexed[a], Value, "{}: axes must be different axes of x; got {} for x {}.", who,
              print_attr(at.axes), x.str());
    indexed[a] = true;
  }
  int rest = x.rank - static_cast<int>(indices.size());
  MGE_CHECK(at.at >= 0 && at.at <= rest, Value, "{}: at must lie in 0..{}; got {}.", who, rest, at.at);
  MultiIndexGeom g;
  g.index = indices[0];
  for (auto& s : indices.subspan(1)) g.index = broadcast_shapes(who, g.index, s);
  MGE_CHECK(rest + g.index.rank <= kMaxRank, Value,
            "{}: the result would have {} dimensions, more than {}; x {}, indices {}.", who, rest + g.index.rank,
            kMaxRank, x.str(), g.index.str());
  for (int i = 0; i < x.rank; ++i)
    if (!indexed[i]) (static_cast<int64_t>(g.outer_axes.size()) < at.at ? g.outer_axes : g.inner_axes).push_back(i);
  for (int64_t a : g.outer_axes) g.result.push_back(x[static_cast<int>(a)]);
  for (int64_t d : g.index) g.result.push_back(d);
  for (int64_t a : g.inner_axes) g.result.push_back(x[static_cast<int>(a)]);
  return g;
}

namespace {

MultiIndexGeom geom_of(const InferCtx& c, size_t first) {
  SmallVec<Shape, kMaxRank> shapes;
  for (size_t i = first; i < c.n(); ++i) {
    nn::check_dtype(c, i, DType::I32);
    shapes.push_back(c.shape(i));
  }
  return multi_index_geom(c.op->name.c_str(), attrs_as<MultiIndexAttrs>(c.attrs), c.shape(0),
                          {shapes.data(), shapes.size()});
}

void infer_get(InferCtx& c) {
  c.out[0].dtype = c.dtype(0);
  keep_quant(c);
  c.out[0].shape = geom_of(c, 1).result;
}

void infer_put(InferCtx& c) {
  MGE_CHECK(c.n() >= 3, Type, "{}: takes x, v and at least one index; got {} inputs.", c.op->name, c.n());
  MultiIndexGeom g = geom_of(c, 2);
  nn::check_dtype(c, 1, c.dtype(0));
  check_same_quant(c, 1);
  keep_quant(c);
  nn::check_shape_is(c, 1, g.result, "(that of the indexed region)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

void infer_incr(InferCtx& c) {
  infer_put(c);
  DType t = c.dtype(0);
  MGE_CHECK(is_float(t) || t == DType::I32, Type, "index_incr: adds floating-point and int32 tensors; got {}.",
            c.x(0).str());
}

// Every position writes its number into x; those that do not read their own back were followed by another.
void decompose_get_last(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<MultiIndexAttrs>(attrs);
  const std::vector<Val> index(in.begin() + 1, in.end());
  Val picked = index_get(in[0], at.axes, at.at, index);
  Val number = reshape(iota(in[0], picked.shape().numel()), picked.shape());
  Val last = index_set(filled(in[0], 0, DType::I32, in[0].shape()), number, at.axes, at.at, index);
  Val own = binary("eq", index_get(last, at.axes, at.at, index), number);
  out[0] = select(own, picked, scalar_like(picked, 0));
}

}  // namespace

void register_multi_index(OpRegistry& r) {
  r.op("index_get")
      .traits(kQuantised)
      .attrs<MultiIndexAttrs>()
      .in("x")
      .variadic_in("indices")
      .out("y")
      .refuses(0b10)
      .infer(infer_get)
      .keeps_format(KeepsFormat::First)
      .doc("x[i, j, ..]: elements at the positions that the int32 indices name together; negative from the end.");
  r.op("index_get_last")
      .attrs<MultiIndexAttrs>()
      .in("x")
      .variadic_in("indices")
      .out("y")
      .refuses(0b10)
      .infer(infer_get)
      .decompose(decompose_get_last)
      .doc("index_get, with 0 where a later position names the same element: the adjoint of index_set in v.");
  r.op("index_set")
      .traits(kQuantised)
      .attrs<MultiIndexAttrs>()
      .in("x", "v")
      .variadic_in("indices")
      .out("y")
      .refuses(0b100)
      .infer(infer_put)
      .doc("x with x[i, j, ..] = v; of equal positions the last wins.");
  r.op("index_incr")
      .attrs<MultiIndexAttrs>()
      .in("x", "v")
      .variadic_in("indices")
      .out("y")
      .refuses(0b100)
      .infer(infer_incr)
      .doc("x with v added at x[i, j, ..], equal positions one after the other, so the bits never vary.");
}

}  // namespace mge
