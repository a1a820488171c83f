// The vocabulary of the rules, beside that of op/emitter.h: slices, joins, tables of constants, operands read as sizes.
#pragma once
#include "compat/op_class.h"

namespace mge::compat {

using In = std::span<const Val>;
using Out = std::vector<Val>;

constexpr int64_t kIntMax = INT32_MAX;  // of the original: "no axis"
constexpr int64_t kNoAxis = 7;          // of the original: the largest number of dimensions

/// All outputs of an op.
Out emit_all(Emitter& em, const char* op, In in, Attrs attrs = nullptr);
template <class A>
Val emit(const char* op, std::initializer_list<Val> in, A attrs) {
  return in.begin()->em->emit1(op, in, make_attrs(std::move(attrs)));
}

// Shapes.
Val slice(const Val& x, int64_t axis, int64_t begin, int64_t end, int64_t step = 1);
Val trimmed(const Val& x, int64_t axis, int64_t before, int64_t after);  // so much less at both ends
Val pick(const Val& x, int64_t axis, int64_t i);                         // drops the axis
Val flipped(const Val& x, int64_t axis);
Val expand(const Val& x, Ints axes);
Val squeeze(const Val& x, Ints axes);
Val concat(In xs, int64_t axis);
Val stack(In xs, int64_t axis);
Val shaped(const Val& x, std::initializer_list<int64_t> sizes);  // reshape; one may be -1
Val padded(const Val& x, std::span<const std::pair<int64_t, int64_t>> widths, double value = 0);
/// mode: "replicate" or "reflect" (about the last element).
Val padded_by_index(const Val& x, std::span<const std::pair<int64_t, int64_t>> widths, std::string_view mode);

// Constants, on the device of `like`.
Val int_table(const Val& like, std::span<const int64_t> values, const Shape& shape);
Val float_table(const Val& like, std::span<const double> values, const Shape& shape);
Val range(const Val& like, int64_t n, const Shape& shape);  // 0, 1, … as int32
Val iota(const Val& like, const SizeValue& n);              // the same, as many as the size says: [n]
Val filled(const Val& like, const Shape& shape, double value, DType dtype);
/// What the original leaves where it keeps notes for its backward pass.
Val nothing(const Val& like, DType dtype = DType::F32);

// Values.
Val take(const Val& x, const Val& index, int64_t axis);
Val index_get(const Val& x, In index, Ints axes, int64_t at);
Val less(const Val& a, const Val& b);
Val positive(const Val& x);                 // x > 0
Val where0(const Val& cond, const Val& x);  // x where cond, else 0
Val clip(const Val& x, double lo, double hi);
Val sum(const Val& x, Ints axes = {}, bool keepdims = false);
Val mean(const Val& x, Ints axes = {}, bool keepdims = false);
/// As float32 where it is float16 or bfloat16.
Val wide(const Val& x);
/// A number beside x: in the dtype of x, but float32 beside integers.
Val number(const Val& x, double v);
/// To a dtype that may be quantised; an open one leaves x as it is.
Val converted(const Val& x, const TypeParam& t);
Val moved(const Val& x, const NodeParam& device);  // an empty name: stays

// Operands that say sizes and positions.
Ints known_ints(std::string_view who, const char* what, const Val& v);
int64_t known_int(std::string_view who, const char* what, const Val& v);
double known_number(std::string_view who, const char* what, const Val& v);
/// The numbers of operand `i`, or `fixed` when there is none; with the operand where later calls may have others.
SizeValues sizes_operand(std::string_view who, In in, size_t i, const Ints& fixed);
SizeValues sizes_of(std::string_view who, const char* what, const Val& v);
/// The same, as numbers of this call alone.
Ints shape_operand(std::string_view who, In in, size_t i, const Ints& fixed);
/// One dimension, with the value (int32 [1]) where later calls may have another.
SizeValue size_at(const Val& x, int axis);
/// One of several sizes.
SizeValue size_at(const SizeValues& s, size_t i);
/// One dimension as a number: what is emitted then holds for this one, and for any others.
int64_t dim(const Val& x, int axis);
/// All of them as they are now: only for what does not depend on them.
inline const Shape& now(const Val& x) { return x.meta().shape; }
/// An op whose field `field` is these sizes.
template <class A>
Val emit_sized(const char* op, std::initializer_list<Val> in, A attrs, std::string_view field, const SizeValues& s) {
  if (!s.operand) return emit(op, in, std::move(attrs));
  return in.begin()->em->emit1(
      op, in, make_attrs(std::move(attrs), {{field_index<A>(field), SizeOperand::kWhole, s.operand.p}}));
}

/// A number, the size of one axis of a value in every call, or what was computed from such sizes.
struct SizePart : SizeValue {
  SizePart(int64_t n) : SizeValue{n, {}} {}
  SizePart(const Val& x, int axis) : SizeValue(size_at(x, axis)) {}
  SizePart(const SizeValue& s) : SizeValue(s) {}
};
SizeValues joined(std::span<const SizePart> parts);
inline SizeValues joined(std::initializer_list<SizePart> parts) {
  return joined(std::span(parts.begin(), parts.size()));
}
/// The size as a value: a constant where it is one.
Val size_value(const Val& like, const SizeValue& size);
Val broadcast_as(const Val& x, const SizeValues& shape);
/// reshape to these; one may be -1.
Val shaped_as(const Val& x, std::initializer_list<SizePart> parts);

std::string_view member_name(const EnumInfo& e, int64_t value);
template <class E>
std::string_view name_of(E e) {
  return member_name(enum_info(e), static_cast<int64_t>(e));
}
std::string lower(std::string_view s);

}  // namespace mge::compat
