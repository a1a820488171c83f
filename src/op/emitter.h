// Rules that emit ops (vjp, decompose) are written against Emitter, so they run eagerly, into the IR, and can be
// differentiated again. Eager dispatch and the IR builder implement it.
#pragma once
#include <optional>
#include <span>

#include "op/opdef.h"

namespace mge {

class Sizes;

/// A value of some emitter: a tensor in eager mode, an SSA value in the IR. Empty = "no gradient".
struct Val {
  Emitter* em = nullptr;
  RefPtr<ValImpl> p;
  explicit operator bool() const { return static_cast<bool>(p); }
  const Meta& meta() const;
  /// The numbers. A call that is being recorded then holds for these sizes only; sizes() and rank() hold for all.
  const Shape& shape() const;
  Sizes sizes() const;
  int rank() const { return meta().shape.rank; }
  DType dtype() const { return meta().dtype; }
};

/// A shape as a rule sees it. While a call is recorded for any sizes, `operand` is the value that holds them (int32,
/// one per axis): whoever hands the whole on (reshape, broadcast_to, sized attributes) stays right in calls with other
/// sizes. Asking for a number (a dimension, a Shape) fixes all of them: the recording is then for these sizes alone.
class Sizes {
 public:
  Sizes(const Shape& s, Val operand = {}) : rank(s.rank), s_(&s), operand_(std::move(operand)) {}
  int rank;
  operator const Shape&() const { return fixed(); }
  int64_t operator[](int axis) const { return fixed()[axis]; }
  const Shape& fixed() const;
  /// As they are in this call: only to be used together with operand().
  const Shape& now() const { return *s_; }
  const Val& operand() const { return operand_; }  // empty: they are the same in every call

 private:
  const Shape* s_;
  Val operand_;
};

/// A value on the host, contiguous in row-major order.
struct HostValue {
  DType dtype = DType::I32;
  Shape shape;
  std::vector<char> bytes;
};

/// A size that a value decides: the number now and, where it may be another one later, the value.
struct SizeValue {
  int64_t now = 0;
  Val operand;
};

/// The same for a handful of them.
struct SizeValues {
  Ints now;
  Val operand;
};

class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) = 0;
  virtual const Meta& meta(const Val& v) = 0;
  /// A 0-d constant on the device of `like`.
  virtual Val constant(double value, DType dtype, const Val& like) = 0;
  /// A constant of any shape; `m.cn` null is the default device. For tables that a rule computes (index lists, grids).
  virtual Val literal(const Meta& m, const void* data);
  /// What `v` holds, where that is known while ops are emitted: any tensor in eager mode, constants and what follows
  /// from them in the IR. Shapes given as operands are asked for here and nowhere else.
  virtual std::optional<HostValue> known(const Val& v);
  /// The same value without gradient history.
  virtual Val detached(const Val& v) { return v; }
  /// The sizes of `v` as a value, while a call is recorded in which they may change; empty otherwise.
  virtual Val size_operand(const Val&) { return {}; }
  /// Whether size_operand would be there, without making it.
  virtual bool any_size(const Val&) { return false; }
  /// A size that depends on values. `guess` stands for it where nothing has been computed.
  virtual SizeValue size_value(const Val& v, int64_t guess);
  /// Integers that decide sizes. Nothing where they are not known while ops are emitted.
  virtual std::optional<SizeValues> size_values(const Val&) { return std::nullopt; }
  /// A value that size_operand gave, or what was computed from such, is used as a number.
  virtual void fix(const Val&) {}

  Val emit1(const char* op, std::initializer_list<Val> in, Attrs attrs = nullptr);
};

inline const Meta& Val::meta() const { return em->meta(*this); }
inline const Shape& Val::shape() const {
  if (em->any_size(*this)) em->fix(em->size_operand(*this));
  return meta().shape;
}
inline Sizes Val::sizes() const { return {meta().shape, em->size_operand(*this)}; }
inline const Shape& Sizes::fixed() const {
  if (operand_) operand_.em->fix(operand_);
  return *s_;
}
/// Attributes one of whose fields (a list, one number per axis) is these sizes.
template <class T>
Attrs sized_attrs(T v, std::string_view field, const Sizes& s) {
  if (!s.operand()) return make_attrs(std::move(v));
  return make_attrs(std::move(v), {{field_index<T>(field), SizeOperand::kWhole, s.operand().p}});
}

/// What a vjp rule sees. in()/out() are only there when Saves names them; metas always are.
class VjpCtx {
 public:
  Emitter* em;
  const OpDef* op;
  const AttrsBase* attrs;
  std::span<const Val> saved_in, saved_out;
  std::span<const Meta> in_metas, out_metas;
  std::span<const Val> in_sizes;  // size operands of the inputs; may be empty
  std::span<const Val> gys;       // empty Val: this output got no gradient
  std::span<Val> gxs;             // to be filled; leave empty for no gradient
  uint64_t wanted;                // bit i: gradient of input i is wanted; inputs from 64 on always are

  const Val& in(size_t i) const { return saved_in[i]; }
  const Val& out(size_t i = 0) const { return saved_out[i]; }
  const Val& gy(size_t i = 0) const { return gys[i]; }
  Sizes in_shape(size_t i) const { return {in_metas[i].shape, i < in_sizes.size() ? in_sizes[i] : Val()}; }
  size_t n_in() const { return in_metas.size(); }
  bool wants(size_t i) const { return i < in_metas.size() && (i >= 64 || (wanted >> i & 1)); }
  void set(size_t i, Val g) { gxs[i] = std::move(g); }
};

// The vocabulary of the rules. Each is one emitted op (operators broadcast like NumPy).
Val operator+(const Val& a, const Val& b);
Val operator-(const Val& a, const Val& b);
Val operator*(const Val& a, const Val& b);
Val operator/(const Val& a, const Val& b);
Val operator-(const Val& a);
Val operator+(const Val& a, double b);
Val operator-(const Val& a, double b);
Val operator-(double a, const Val& b);
Val operator*(const Val& a, double b);
Val operator/(const Val& a, double b);
Val operator/(double a, const Val& b);
/// The op by which several gradients of one value meet.
const OpDef& add_op();
Val unary(const char* op, const Val& x);                  // unary("exp", x)
Val binary(const char* op, const Val& a, const Val& b);   // binary("maximum", a, b)
Val select(const Val& cond, const Val& a, const Val& b);  // where
Val scalar_like(const Val& like, double v);
Val cast(const Val& x, DType t);  // no-op when equal
Val reduce(const Val& x, const char* mode, Ints axes, bool keepdims);
Val reshape(const Val& x, const Sizes& s);       // no-op when equal
Val broadcast_to(const Val& x, const Sizes& s);  // no-op when equal
Val expand_dims(const Val& x, Ints axes);        // no-op without axes
Val transpose(const Val& x, Ints perm);
Val matmul(const Val& a, const Val& b, bool ta, bool tb);
Val zeros_like(const Val& x);
/// Zeros of the dtype of `like`.
Val zeros(const Val& like, const Sizes& s);
/// Sums g down to `s`, undoing a broadcast.
Val unbroadcast(const Val& g, const Sizes& s);
/// The same for numbers.
Val summed_to(const Val& g, const Shape& s);
/// How many elements the axes hold together, as a number of the dtype of `like`.
Val count_of(const Val& like, const Sizes& s, const Ints& axes);

}  // namespace mge
