#include "op/reduce/reduce.h"
#include "op/emitter.h"

namespace mge {
namespace {

Ints axes_of(const VjpCtx& c, const Ints& axes) {
  uint32_t mask = reduced_axes(axes, c.in_shape(0).rank);
  Ints out;
  for (int i = 0; i < c.in_shape(0).rank; ++i)
    if (mask >> i & 1) out.push_back(i);
  return out;
}
// A result with size 1 where an axis was reduced.
Val with_axes(const VjpCtx& c, const Val& y, const Ints& axes) {
  return y.rank() == c.in_shape(0).rank ? y : expand_dims(y, axes);
}
Val mask_of(const Val& cond, const Val& like) { return cast(cond, like.dtype()); }

void vjp_reduce(VjpCtx& c) {
  auto& a = attrs_as<ReduceAttrs>(c.attrs);
  const Sizes x_shape = c.in_shape(0);
  const Ints axes = axes_of(c, a.axes);
  DType x_type = c.in_metas[0].dtype;
  if (!is_float(x_type)) return;
  Val g = with_axes(c, c.gy(), axes);
  switch (parse_reduce_mode(a.mode)) {
    case ReduceMode::Sum:
      break;
    case ReduceMode::Mean:
      g = g / count_of(g, x_shape, axes);
      break;
    case ReduceMode::Max:
    case ReduceMode::Min: {  // equally to all positions that hold the extreme value
      const Val& x = c.in(0);
      Val hit = mask_of(binary("eq", x, with_axes(c, c.out(), axes)), x);
      g = g / reduce(hit, "sum", a.axes, true) * hit;
      break;
    }
    case ReduceMode::Prod: {
      // The product of the others: prod/x without zeros; with one zero only its own position has a gradient.
      const Val& x = c.in(0);
      Val zero = binary("eq", x, scalar_like(x, 0));
      Val safe = select(zero, scalar_like(x, 1), x);
      Val zeros = reduce(mask_of(zero, x), "sum", a.axes, true);
      Val others = reduce(safe, "prod", a.axes, true) / safe;
      Val at_zero = binary("eq", zeros, scalar_like(x, 1)), none = binary("eq", zeros, scalar_like(x, 0));
      Val alive = binary("logical_or", none, binary("logical_and", at_zero, zero));
      g = g * select(alive, others, scalar_like(x, 0));
      break;
    }
  }
  c.set(0, cast(broadcast_to(g, x_shape), x_type));
}

}  // namespace

void register_reduce_grads(OpRegistry& r) {
  r.grad("reduce", vjp_reduce, {.inputs = 1, .outputs = 1}, [](const AttrsBase* a) -> Saves {
    switch (parse_reduce_mode(attrs_as<ReduceAttrs>(a).mode)) {
      case ReduceMode::Sum:
      case ReduceMode::Mean:
        return {};  // only the shape
      case ReduceMode::Prod:
        return {.inputs = 1};
      default:
        return {.inputs = 1, .outputs = 1};
    }
  });
}

}  // namespace mge
