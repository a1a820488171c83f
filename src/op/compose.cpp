#include "op/compose.h"

#include "op/index/indexing.h"
#include "op/index/multi_index.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

Val emit_many(const char* op, const std::vector<Val>& in, Attrs attrs) {
  Val out;
  in[0].em->emit(OpRegistry::global().get(op), attrs, {in.data(), in.size()}, {&out, 1});
  return out;
}

Val indexed(const char* op, std::vector<Val> in, Ints axes, int64_t at, const std::vector<Val>& index) {
  in.insert(in.end(), index.begin(), index.end());
  return emit_many(op, in, make_attrs(MultiIndexAttrs{std::move(axes), at}));
}

Ints all_axes(const Val& x) {
  Ints v;
  for (int i = 0; i < x.shape().rank; ++i) v.push_back(i);
  return v;
}
std::vector<Val> places(int axis, const Val& index) {
  std::vector<Val> at;
  for (int i = 0; i < index.shape().rank; ++i) at.push_back(i == axis ? index : iota_along(index, index.shape(), i));
  return at;
}

}  // namespace

Val wide(const Val& x) { return x.dtype() == DType::F16 || x.dtype() == DType::BF16 ? cast(x, DType::F32) : x; }
Val maximum(const Val& a, const Val& b) { return binary("maximum", a, b); }
Val minimum(const Val& a, const Val& b) { return binary("minimum", a, b); }

Val filled(const Val& like, double v, DType t, const Shape& s) {
  return broadcast_to(like.em->constant(v, t, like), s);
}

Val iota(const Val& like, int64_t n) {
  Val v = filled(like, 0, DType::I32, Shape{1});
  for (int64_t size = 1; size < n; size *= 2) v = concat({v, v + static_cast<double>(size)}, 0);
  return v.shape()[0] == n ? v : slice_axis(v, 0, 0, n);
}

Val iota_along(const Val& like, const Shape& s, int axis) {
  Shape to = Shape::filled(s.rank, 1);
  to[axis] = s[axis];
  return reshape(iota(like, s[axis]), to);
}

Val slice_axis(const Val& x, int axis, int64_t from, int64_t to, int64_t step) {
  if (from == 0 && to == x.shape()[axis] && step == 1) return x;
  return x.em->emit1("slice", {x}, make_attrs(SliceAttrs{{axis}, {from}, {to}, {step}}));
}

Val element(const Val& x, int axis, int64_t i) {
  Shape s = x.shape();
  s.erase(axis);
  return reshape(slice_axis(x, axis, i, i + 1), s);
}

Val concat(const std::vector<Val>& parts, int axis) {
  return parts.size() == 1 ? parts[0] : emit_many("concat", parts, make_attrs(AxisAttrs{axis}));
}

Val padded(const Val& x, int axis, int64_t before, int64_t after, double fill) {
  std::vector<Val> parts;
  auto gap = [&](int64_t n) {
    Shape s = x.shape();
    s[axis] = n;
    if (n > 0) parts.push_back(filled(x, fill, x.dtype(), s));
  };
  gap(before);
  parts.push_back(x);
  gap(after);
  return concat(parts, axis);
}

Val index_get(const Val& x, Ints axes, int64_t at, const std::vector<Val>& index) {
  return indexed("index_get", {x}, std::move(axes), at, index);
}
Val index_set(const Val& x, const Val& v, Ints axes, int64_t at, const std::vector<Val>& index) {
  return indexed("index_set", {x, v}, std::move(axes), at, index);
}
Val index_incr(const Val& x, const Val& v, Ints axes, int64_t at, const std::vector<Val>& index) {
  return indexed("index_incr", {x, v}, std::move(axes), at, index);
}
Val take_rows(const Val& x, int axis, const Val& index) { return index_get(x, {axis}, axis, {index}); }

Val get_along(const Val& x, int axis, const Val& index) { return index_get(x, all_axes(x), 0, places(axis, index)); }
Val set_along(const Val& x, const Val& v, int axis, const Val& index) {
  return index_set(x, v, all_axes(x), 0, places(axis, index));
}
Val incr_along(const Val& x, const Val& v, int axis, const Val& index) {
  return index_incr(x, v, all_axes(x), 0, places(axis, index));
}

Val checked_index(const Val& index, int64_t size, std::string who) {
  return index.em->emit1("wrap_index", {index}, make_attrs(WrapIndexAttrs{size, false, std::move(who)}));
}

}  // namespace mge
