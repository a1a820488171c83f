// Order, selection by masks and by positions.
#include <algorithm>

#include "compat/emit.h"
#include "op/index/indexing.h"
#include "op/index/sort.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(Order, "Argsort", "Order", ASCENDING, DESCENDING)
MGE_COMPAT_ENUM(TakeMode, "CondTake", "Mode", EQ, NEQ, LT, LEQ, GT, GEQ)
MGE_COMPAT_ENUM(TopKMode, "TopK", "Mode", KTH_ONLY, VALUE_IDX_NOSORT, VALUE_IDX_SORTED)

struct OneHot {
  int64_t axis = 0, ndim = 0;
  static constexpr auto fields() { return field_list("axis", &OneHot::axis, "ndim", &OneHot::ndim); }
};
struct Axis {
  int64_t axis = 0;
  static constexpr auto fields() { return field_list("axis", &Axis::axis); }
};
struct Argsort {
  Order order = Order::ASCENDING;
  static constexpr auto fields() { return field_list("order", &Argsort::order); }
};
struct TopK {
  TopKMode mode = TopKMode::KTH_ONLY;
  static constexpr auto fields() { return field_list("mode", &TopK::mode); }
};
struct CompareTake {
  TakeMode mode = TakeMode::EQ;
  double val = 0, eps = 1e-6;
  static constexpr auto fields() {
    return field_list("mode", &CompareTake::mode, "val", &CompareTake::val, "eps", &CompareTake::eps);
  }
};
struct MaskedFill {
  double value = 0;
  static constexpr auto fields() { return field_list("value", &MaskedFill::value); }
};

/// Index and values of the one-hot classes may keep the axis, with size 1.
Val without_axis(const Val& v, int rank, int axis) { return v.rank() == rank ? squeeze(v, {axis}) : v; }

void one_hot(Emitter&, const OneHot& p, In in, Out& out) {
  const int rank = in[0].rank();
  MGE_CHECK(rank >= 2, Value, "IndexingOneHot: the source needs at least 2 dimensions; got {}.", in[0].shape().str());
  const int axis = normalize_axis("IndexingOneHot", p.axis, rank);
  const Val index = cast(without_axis(in[1], rank, axis), DType::I32);
  out.push_back(expand(emit("indexing_one_hot", {in[0], index}, OneHotAttrs{axis}), {axis}));
}
void set_one_hot(Emitter&, const OneHot& p, In in, Out& out) {
  const int rank = in[0].rank(), axis = normalize_axis("IndexingSetOneHot", p.axis, rank);
  const Val index = cast(without_axis(in[1], rank, axis), DType::I32);
  out.push_back(emit("set_one_hot", {in[0], index, without_axis(in[2], rank, axis)}, OneHotAttrs{axis}));
}

void argmax(Emitter&, const Axis& p, In in, Out& out) {
  out.push_back(emit("argmax", {in[0]}, ArgReduceAttrs{p.axis, true}));
}
void argmin(Emitter&, const Axis& p, In in, Out& out) {
  out.push_back(emit("argmin", {in[0]}, ArgReduceAttrs{p.axis, true}));
}
void argsort(Emitter& em, const Argsort& p, In in, Out& out) {
  out = emit_all(em, "sort", in, make_attrs(SortAttrs{-1, p.order == Order::DESCENDING}));
}

void topk(Emitter& em, const TopK& p, In in, Out& out) {
  const Val& x = in[0];
  const Shape s = now(x);
  MGE_CHECK(s.rank == 1 || s.rank == 2, Assertion, "TopK: needs 1 or 2 dimensions; got {}.", s.str());
  const int64_t k = known_int("TopK", "k", in[1]), size = s.back();
  MGE_CHECK(k != 0, Value, "TopK: k must not be 0.");
  const bool largest = k < 0, kth = p.mode == TopKMode::KTH_ONLY;
  const int64_t count = std::min(std::abs(k), size);
  MGE_CHECK(!kth || size > 0, Value, "TopK: a row without elements has no k-th one; got {}.", s.str());
  const bool sorted = p.mode != TopKMode::VALUE_IDX_NOSORT;
  std::vector<SizeOperand> sizes;
  if (const Val all = em.size_operand(x)) {  // no more than there are
    const int64_t wanted[] = {std::abs(k)};
    const Val have = slice(all, 0, s.rank - 1, s.rank);
    sizes.push_back(
        {field_index<TopkAttrs>("k"), SizeOperand::kWhole, binary("minimum", have, int_table(x, wanted, Shape{1})).p});
  }
  out = emit_all(em, "topk", in.subspan(0, 1), make_attrs(TopkAttrs{count, -1, largest, sorted}, std::move(sizes)));
  const int64_t last = s.rank - 1;
  if (kth) out = {squeeze(emit("slice", {out[0]}, SliceAttrs{{last}, {-1}, {0}, {0}, true}), {last})};
}

// Positions of what is not 0 in the flattened tensor; how many there are depends on values.
Val chosen(Emitter& em, const Val& mask) {
  Val found[2];
  em.emit(OpRegistry::global().get("nonzero"), nullptr, {&mask, 1}, found);
  const SizeValue n = em.size_value(found[1], found[0].meta().shape[0]);
  std::vector<SizeOperand> sizes;
  if (n.operand) sizes.push_back({field_index<SliceAttrs>("stops"), 0, n.operand.p});
  return em.emit1("slice", {found[0]}, make_attrs(SliceAttrs{{0}, {0}, {n.now}, {1}, true}, std::move(sizes)));
}

void cond_take(Emitter& em, const None&, In in, Out& out) {
  const Val &x = in[0], &mask = in[1];
  MGE_CHECK(mask.dtype() == DType::Bool, Value, "CondTake: the mask must be a bool tensor; got {}.",
            dtype_name(mask.dtype()));
  MGE_CHECK(now(mask) == now(x), Value, "CondTake: the mask has shape {} but the data {}.", mask.shape().str(),
            x.shape().str());
  const Val place = chosen(em, mask);
  out = {take(shaped(x, {-1}), place, 0), place};
}

// In files the mask is compared with a number; numbers within eps are equal.
void compare_take(Emitter& em, const CompareTake& p, In in, Out& out) {
  const Val m = cast(in[1], DType::F32);
  auto below = [&](double bound) { return less(m, scalar_like(m, bound)); };
  auto above = [&](double bound) { return less(scalar_like(m, bound), m); };
  auto opposite = [](const Val& v) { return unary("logical_not", v); };
  const Val differs = binary("logical_or", below(p.val - p.eps), above(p.val + p.eps));
  Val mask;
  switch (p.mode) {
    case TakeMode::EQ:
      mask = opposite(differs);
      break;
    case TakeMode::NEQ:
      mask = differs;
      break;
    case TakeMode::LT:
      mask = below(p.val - p.eps);
      break;
    case TakeMode::LEQ:
      mask = opposite(above(p.val + p.eps));
      break;
    case TakeMode::GT:
      mask = above(p.val + p.eps);
      break;
    case TakeMode::GEQ:
      mask = opposite(below(p.val - p.eps));
      break;
  }
  const Val both[] = {in[0], mask};
  cond_take(em, {}, both, out);
}

void non_zero(Emitter& em, const None&, In in, Out& out) {
  const Val x = in[0].rank() ? in[0] : shaped(in[0], {1});
  const Val place = chosen(em, x);
  const Sizes s = x.sizes();
  out.push_back(em.emit1("unravel", {place}, sized_attrs(ShapeAttrs{to_ints(s.now())}, "shape", s)));
}

void where(Emitter&, const None&, In in, Out& out) { out.push_back(select(in[0], in[1], in[2])); }
void where_backward(Emitter&, const None&, In in, Out& out) {
  const Val &dz = in[0], &mask = in[1], zero = scalar_like(dz, 0);
  out = {select(mask, dz, zero), select(mask, zero, dz)};
}
void masked_fill(Emitter&, const MaskedFill& p, In in, Out& out) {
  const Val &x = in[0], &mask = in[1];
  const Shape s = now(mask);
  bool leads = s.rank <= x.rank();
  for (int i = 0; leads && i < s.rank; ++i) leads = s[i] == now(x)[i];
  MGE_CHECK(leads, Index, "MaskedFill: mask of shape {} does not match the leading axes of {}.", s.str(),
            x.shape().str());
  Ints behind;
  for (int i = s.rank; i < x.rank(); ++i) behind.push_back(i);
  const Val cond = cast(behind.empty() ? mask : expand(mask, behind), DType::Bool);
  out.push_back(select(cond, scalar_like(x, p.value), x));
}

}  // namespace

void add_selection(Table& t) {
  t.add<OneHot, one_hot>("IndexingOneHot", {2, 2}, "IndexingOneHot@1");
  t.add<OneHot, set_one_hot>("IndexingSetOneHot", {3, 3}, "IndexingSetOneHot@1");
  t.add<Axis, argmax>("Argmax", {1, 1}, "Argmax@1");
  t.add<Axis, argmin>("Argmin", {1, 1}, "Argmin@1");
  t.add<Argsort, argsort>("Argsort", {1, 1}, "Argsort@1");
  t.add<TopK, topk>("TopK", {2, 2}, "TopK@1");
  t.add<None, cond_take>("CondTake", {2, 2});
  t.add_file_type<CompareTake, compare_take>("CompareTake", {2, 2}, "CondTake@1");
  t.add<None, non_zero>("NonZero", {1, 1}, "NonZero@1");
  t.add<None, where>("Where", {3, 3}, "Where@1");
  t.add<None, where_backward>("WhereBackward", {2, 2}, "WhereBackward@1");
  t.add<MaskedFill, masked_fill>("MaskedFill", {2, 2}, "MaskedFill@1");
}

}  // namespace mge::compat
