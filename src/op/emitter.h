// Rules that emit ops (vjp, decompose) are written against Emitter, so they run eagerly, into the IR, and can be
// differentiated again. Eager dispatch and the IR builder implement it.
#pragma once
#include <optional>
#include <span>

#include "op/opdef.h"

namespace mge {

struct ValImpl : RefCounted {
  virtual ~ValImpl() = default;
};

/// A value of some emitter: a tensor in eager mode, an SSA value in the IR. Empty = "no gradient".
struct Val {
  Emitter* em = nullptr;
  RefPtr<ValImpl> p;
  explicit operator bool() const { return static_cast<bool>(p); }
  const Meta& meta() const;
  const Shape& shape() const { return meta().shape; }
  DType dtype() const { return meta().dtype; }
};

/// A value on the host, contiguous in row-major order.
struct HostValue {
  DType dtype = DType::I32;
  Shape shape;
  std::vector<char> bytes;
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
  /// from them in the IR. Shapes given as operands are asked for here and nowhere else. `sizes_of` names an op whose
  /// result has a size that depends on the value, which ends a recording.
  virtual std::optional<HostValue> known(const Val& v, const char* sizes_of = nullptr);
  /// The same value without gradient history.
  virtual Val detached(const Val& v) { return v; }

  Val emit1(const char* op, std::initializer_list<Val> in, Attrs attrs = nullptr);
};

inline const Meta& Val::meta() const { return em->meta(*this); }

/// What a vjp rule sees. in()/out() are only there when Saves names them; metas always are.
class VjpCtx {
 public:
  Emitter* em;
  const OpDef* op;
  const AttrsBase* attrs;
  std::span<const Val> saved_in, saved_out;
  std::span<const Meta> in_metas, out_metas;
  std::span<const Val> gys;  // empty Val: this output got no gradient
  std::span<Val> gxs;        // to be filled; leave empty for no gradient
  uint64_t wanted;           // bit i: gradient of input i is wanted; inputs from 64 on always are

  const Val& in(size_t i) const { return saved_in[i]; }
  const Val& out(size_t i = 0) const { return saved_out[i]; }
  const Val& gy(size_t i = 0) const { return gys[i]; }
  const Shape& in_shape(size_t i) const { return in_metas[i].shape; }
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
Val reshape(const Val& x, const Shape& s);       // no-op when equal
Val broadcast_to(const Val& x, const Shape& s);  // no-op when equal
Val transpose(const Val& x, Ints perm);
Val matmul(const Val& a, const Val& b, bool ta, bool tb);
Val zeros_like(const Val& x);
/// Sums g down to `s`, undoing a broadcast.
Val unbroadcast(const Val& g, const Shape& s);

}  // namespace mge
