#include "op/index/indexing.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/quant/quantize.h"
#include "op/reduce/scan.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// index must have the shape of x without the axis.
int check_one_hot(const InferCtx& c) {
  nn::check_rank(c, 0, 1, kMaxRank);
  nn::check_dtype(c, 1, DType::I32);
  int axis = normalize_axis(c.op->name.c_str(), attrs_as<OneHotAttrs>(c.attrs).axis, c.shape(0).rank);
  Shape want = c.shape(0);
  want.erase(axis);
  nn::check_shape_is(c, 1, want, format("(x {} without axis {})", c.shape(0).str(), axis));
  return axis;
}

void infer_indexing_one_hot(InferCtx& c) {
  check_one_hot(c);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(1);
  keep_quant(c);
}

void infer_set_one_hot(InferCtx& c) {
  check_one_hot(c);
  nn::check_dtype(c, 2, c.dtype(0));
  check_same_quant(c, 2);
  keep_quant(c);
  nn::check_shape_is(c, 2, c.shape(1), "(that of index)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

Shape take_shape(const InferCtx& c, const Shape& x, int axis, const Shape& index) {
  int rank = x.rank - 1 + index.rank;
  MGE_CHECK(rank <= kMaxRank, Value, "{}: the result would have {} dimensions, more than {}; x {}, index {}.",
            c.op->name, rank, kMaxRank, x.str(), index.str());
  Shape s(x.d, static_cast<size_t>(axis));
  for (int64_t d : index) s.push_back(d);
  for (int i = axis + 1; i < x.rank; ++i) s.push_back(x[i]);
  return s;
}

void infer_take(InferCtx& c) {
  nn::check_rank(c, 0, 1, kMaxRank);
  nn::check_dtype(c, 1, DType::I32);
  int axis = normalize_axis("take", attrs_as<TakeAttrs>(c.attrs).axis, c.shape(0).rank);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = take_shape(c, c.shape(0), axis, c.shape(1));
  keep_quant(c);
}

void infer_take_bwd(InferCtx& c) {
  const auto& at = attrs_as<TakeBwdAttrs>(c.attrs);
  nn::check_float(c, 0);
  nn::check_dtype(c, 1, DType::I32);
  Shape x = to_shape(at.x_shape);
  check_shape("take_bwd", x);
  int axis = normalize_axis("take_bwd", at.axis, x.rank);
  nn::check_shape_is(c, 0, take_shape(c, x, axis, c.shape(1)),
                     format("(take of x_shape {} by index {})", x.str(), c.shape(1).str()));
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}

void infer_wrap_index(InferCtx& c) {
  MGE_CHECK(is_int(c.dtype(0)) || is_float(c.dtype(0)), Type, "wrap_index: takes whole numbers; got {}.",
            dtype_name(c.dtype(0)));
  const auto& at = attrs_as<WrapIndexAttrs>(c.attrs);
  MGE_CHECK(at.size >= 0, Value, "wrap_index: size must be at least 0; got {}.", at.size);
  MGE_CHECK(at.size <= int64_t{INT32_MAX} + 1, Value,
            "{}: positions are int32, but there are {} entries. Give an index of int32, if it reaches far enough.",
            at.who, at.size);
  c.out[0].dtype = DType::I32;
  c.out[0].shape = c.shape(0);
}

void infer_check_range(InferCtx& c) {
  MGE_CHECK(is_int(c.dtype(0)) || is_float(c.dtype(0)) || c.dtype(0) == DType::Bool, Type,
            "check_range: takes numbers; got {}.", dtype_name(c.dtype(0)));
  c.out[0] = c.x(0);
}

// The one element of each position is what gather takes with an index of size 1 along the axis.
Val one_hot_index(const AttrsBase* attrs, const Val& x, const Val& index, const char* who, int* axis) {
  *axis = normalize_axis(who, attrs_as<OneHotAttrs>(attrs).axis, x.shape().rank);
  Shape keep = x.shape();
  keep[*axis] = 1;
  return reshape(checked_index(index, x.shape()[*axis], who), keep);
}
void decompose_indexing_one_hot(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  int axis;
  Val index = one_hot_index(attrs, in[0], in[1], "indexing_one_hot", &axis);
  out[0] = reshape(get_along(in[0], axis, index), in[1].shape());
}
void decompose_set_one_hot(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  int axis;
  Val index = one_hot_index(attrs, in[0], in[1], "set_one_hot", &axis);
  out[0] = set_along(in[0], reshape(in[2], index.shape()), axis, index);
}
void decompose_take(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  out[0] = take_rows(in[0], normalize_axis("take", attrs_as<TakeAttrs>(attrs).axis, in[0].shape().rank), in[1]);
}
void decompose_take_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<TakeBwdAttrs>(attrs);
  Shape x = to_shape(at.x_shape);
  int axis = normalize_axis("take_bwd", at.axis, x.rank);
  Val gy = wide(in[0]);
  out[0] = cast(index_incr(filled(gy, 0, gy.dtype(), x), gy, {axis}, axis, {in[1]}), in[0].dtype());
}

void infer_nonzero(InferCtx& c) {
  const int64_t n = c.shape(0).numel();
  MGE_CHECK(n <= INT32_MAX, Value, "nonzero: positions are int32; got {} elements.", n);
  c.out[0].dtype = c.out[1].dtype = DType::I32;
  c.out[0].shape = Shape{n};
  c.out[1].shape = Shape{};
}
// Each element that is not 0 writes its position to where the count of those before it says; all others write behind
// the end.
void decompose_nonzero(Emitter& em, const AttrsBase*, std::span<const Val> in, std::span<Val> out) {
  const int64_t n = in[0].shape().numel();
  const Val x = reshape(in[0], Shape{n});
  if (n == 0) {
    out[0] = filled(x, 0, DType::I32, Shape{0});
    out[1] = filled(x, 0, DType::I32, Shape{});
    return;
  }
  const Val mask = x.dtype() == DType::Bool ? x : binary("ne", x, scalar_like(x, 0));
  const Val count = em.emit1("cumsum", {cast(mask, DType::I32)}, make_attrs(CumsumAttrs{}));
  const Val place = select(mask, count - 1, broadcast_to(em.constant(static_cast<double>(n), DType::I32, x), Shape{n}));
  const Val all = index_set(filled(x, 0, DType::I32, Shape{n + 1}), iota(x, n), {0}, 0, {place});
  out[0] = slice_axis(all, 0, 0, n);
  out[1] = element(count, 0, n - 1);
}

void infer_unravel(InferCtx& c) {
  nn::check_dtype(c, 0, DType::I32);
  const Shape s = to_shape(attrs_as<ShapeAttrs>(c.attrs).shape);
  check_shape("unravel", s);
  c.out[0].dtype = DType::I32;
  c.out[0].shape = c.shape(0);
  c.out[0].shape.insert(0, s.rank);
}
void decompose_unravel(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Shape s = to_shape(attrs_as<ShapeAttrs>(attrs).shape);
  std::vector<Val> parts(static_cast<size_t>(s.rank));
  Val rest = in[0];
  for (int i = s.rank - 1; i >= 0; --i) {
    const double size = static_cast<double>(std::max<int64_t>(s[i], 1));
    const Val above = binary("floor_div", rest, scalar_like(rest, size));
    parts[static_cast<size_t>(i)] = expand_dims(rest - above * scalar_like(rest, size), {0});
    rest = above;
  }
  Shape none = in[0].shape();
  none.insert(0, 0);
  out[0] = parts.empty() ? filled(in[0], 0, DType::I32, none) : concat(parts, 0);
}

}  // namespace

void throw_bad_index(const char* op, const char* what, int64_t got, int64_t lo, int64_t size, int64_t position) {
  fail(ErrorKind::Index, "{}: {} {} at position {} is out of range; valid are {}..{} ({} {}).", op, what, got, position,
       lo, size - 1, size, what == std::string_view("label") ? "classes" : "entries");
}

void register_indexing(OpRegistry& r) {
  r.op("indexing_one_hot")
      .traits(kQuantised)
      .attrs<OneHotAttrs>()
      .in("x", "index")
      .out("y")
      .refuses(0b10)
      .infer(infer_indexing_one_hot)
      .decompose(decompose_indexing_one_hot)
      .doc("y[..] = x[.., index[..], ..]: one element along the axis for each position; index is int32.");
  r.op("set_one_hot")
      .traits(kQuantised)
      .attrs<OneHotAttrs>()
      .in("x", "index", "v")
      .out("y")
      .refuses(0b10)
      .infer(infer_set_one_hot)
      .decompose(decompose_set_one_hot)
      .doc("x with y[.., index[..], ..] = v[..].");
  r.op("take")
      .traits(kQuantised)
      .attrs<TakeAttrs>()
      .in("x", "index")
      .out("y")
      .refuses(0b10)
      .infer(infer_take)
      .decompose(decompose_take)
      .doc(
          "Slices of x along the axis, one for each entry of index (int32, negative counts from the end): embedding "
          "lookup.");
  r.op("wrap_index")
      .attrs<WrapIndexAttrs>()
      .in("index")
      .out("y")
      .refuses(0b1)
      .infer(infer_wrap_index)
      .traits(kNoGrad)
      .doc(
          "index as int32, with negative entries counted from the end of size; an error when one is out of range or "
          "no whole number.");
  r.op("check_range")
      .attrs<CheckRangeAttrs>()
      .in("x")
      .out("y")
      .refuses(0b1)
      .infer(infer_check_range)
      .keeps_format(KeepsFormat::First)
      .doc("x; an error when an element lies outside low..high. NaN passes.");
  r.op("nonzero")
      .in("x")
      .out("index", "count")
      .infer(infer_nonzero)
      .traits(kNoGrad)
      .decompose(decompose_nonzero)
      .doc("Positions in the flattened x of what is not 0, in order, then zeros; and how many there are. int32.");
  r.op("unravel")
      .attrs<ShapeAttrs>()
      .in("index")
      .out("y")
      .infer(infer_unravel)
      .traits(kNoGrad)
      .decompose(decompose_unravel)
      .doc("Positions in a flattened tensor of a shape as one row of indices per axis.");
  r.op("take_bwd")
      .attrs<TakeBwdAttrs>()
      .in("gy", "index")
      .out("gx")
      .refuses(0b10)
      .infer(infer_take_bwd)
      .decompose(decompose_take_bwd)
      .doc("Adjoint of take: adds each slice of gy to where it came from, in index order, so the bits never vary.");
}

}  // namespace mge
