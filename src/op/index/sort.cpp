#include "op/index/sort.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/quant/quantize.h"

namespace mge {
namespace {

// Checks what both orders need and returns the axis.
int ordered_axis(const InferCtx& c, int64_t axis) {
  const char* op = c.op->name.c_str();
  DType t = c.dtype(0);
  MGE_CHECK(is_float(t) || is_int(t) || t == DType::Bool, Type, "{}: {} values have no order; got x {}.", op,
            dtype_name(t), c.x(0).str());
  nn::check_rank(c, 0, 1, kMaxRank);
  int a = normalize_axis(op, axis, c.shape(0).rank);
  MGE_CHECK(c.shape(0)[a] < (int64_t{1} << 31), Value, "{}: positions are int32, but axis {} has {} elements.", op, a,
            c.shape(0)[a]);
  return a;
}

void infer_sort(InferCtx& c) {
  ordered_axis(c, attrs_as<SortAttrs>(c.attrs).axis);
  c.out[0].dtype = c.dtype(0);
  c.out[1].dtype = DType::I32;
  c.out[0].shape = c.out[1].shape = c.shape(0);
}

void infer_topk(InferCtx& c) {
  const auto& at = attrs_as<TopkAttrs>(c.attrs);
  int axis = ordered_axis(c, at.axis);
  int64_t size = c.shape(0)[axis];
  MGE_CHECK(at.k >= 0 && at.k <= size, Value, "topk: k must lie in 0..{}, the size of axis {}; got k {}, x {}.", size,
            axis, at.k, c.shape(0).str());
  c.out[0].dtype = c.dtype(0);
  c.out[1].dtype = DType::I32;
  c.out[0].shape = c.shape(0);
  c.out[0].shape[axis] = at.k;
  c.out[1].shape = c.out[0].shape;
}

void check_index(const InferCtx& c, const Shape& x, int axis, const Shape& index) {
  MGE_CHECK(index.rank == x.rank, Value, "{}: index must have {} dimensions like x; got index {}, x {}.", c.op->name,
            int{x.rank}, index.str(), x.str());
  for (int i = 0; i < x.rank; ++i)
    MGE_CHECK(i == axis || index[i] <= x[i], Value, "{}: index {} exceeds x {} on axis {}.", c.op->name, index.str(),
              x.str(), i);
}

void infer_gather(InferCtx& c) {
  nn::check_rank(c, 0, 1, kMaxRank);
  nn::check_dtype(c, 1, DType::I32);
  int axis = normalize_axis("gather", attrs_as<GatherAttrs>(c.attrs).axis, c.shape(0).rank);
  check_index(c, c.shape(0), axis, c.shape(1));
  c.out[0].dtype = c.dtype(0);
  keep_quant(c);
  c.out[0].shape = c.shape(1);
}

void infer_gather_bwd(InferCtx& c) {
  const auto& at = attrs_as<GatherBwdAttrs>(c.attrs);
  nn::check_float(c, 0);
  nn::check_dtype(c, 1, DType::I32);
  Shape x = to_shape(at.x_shape);
  check_index(c, x, normalize_axis("gather_bwd", at.axis, x.rank), c.shape(1));
  nn::check_shape_is(c, 0, c.shape(1), "(that of index)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = x;
}

void decompose_gather(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  out[0] = get_along(in[0], normalize_axis("gather", attrs_as<GatherAttrs>(attrs).axis, in[0].shape().rank), in[1]);
}
void decompose_gather_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<GatherBwdAttrs>(attrs);
  Shape x = to_shape(at.x_shape);
  Val gy = wide(in[0]), none = filled(gy, 0, gy.dtype(), x);
  out[0] = cast(incr_along(none, gy, normalize_axis("gather_bwd", at.axis, x.rank), in[1]), in[0].dtype());
}

void sorted(const Val& x, int64_t axis, bool descending, Val out[2]) {
  static const OpDef& sort = OpRegistry::global().get("sort");
  x.em->emit(sort, make_attrs(SortAttrs{axis, descending}), {&x, 1}, {out, 2});
}
void decompose_topk(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<TopkAttrs>(attrs);
  int axis = normalize_axis("topk", at.axis, in[0].shape().rank);
  Val all[2];
  sorted(in[0], axis, at.descending, all);
  for (size_t i : {0, 1}) out[i] = slice_axis(all[i], axis, 0, at.k);
  if (at.sorted) return;
  Val order[2];
  sorted(out[1], axis, false, order);
  out[1] = order[0];
  out[0] = get_along(in[0], axis, out[1]);
}

}  // namespace

void register_sort(OpRegistry& r) {
  r.op("sort")
      .attrs<SortAttrs>()
      .in("x")
      .out("y", "index")
      .infer(infer_sort)
      .doc("x in order along the axis, and where each element came from (int32). Stable; NaN counts as largest.");
  r.op("topk")
      .attrs<TopkAttrs>()
      .in("x")
      .out("y", "index")
      .infer(infer_topk)
      .decompose(decompose_topk)
      .doc("The k largest (or smallest) elements along the axis and their positions (int32); of equals the first.");
  r.op("gather")
      .traits(kQuantised)
      .attrs<GatherAttrs>()
      .in("x", "index")
      .out("y")
      .refuses(0b10)
      .infer(infer_gather)
      .decompose(decompose_gather)
      .doc("y[i][j] = x[index[i][j]][j] for axis 0, and so on; index is int32, negative counts from the end.");
  r.op("gather_bwd")
      .attrs<GatherBwdAttrs>()
      .in("gy", "index")
      .out("gx")
      .refuses(0b10)
      .infer(infer_gather_bwd)
      .decompose(decompose_gather_bwd)
      .doc("Adjoint of gather: adds each element of gy to where it came from, in index order.");
}

}  // namespace mge
