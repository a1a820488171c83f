#include "op/emitter.h"

#include <string_view>
#include <unordered_map>

#include "op/matmul/matmul.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// Rules name ops by string literals; looking the literal's address up once keeps emission cheap.
const OpDef& cached_op(const char* name) {
  static thread_local std::unordered_map<const char*, const OpDef*> cache;
  const OpDef*& d = cache[name];
  if (!d || d->name != name) d = &OpRegistry::global().get(name);
  return *d;
}

}  // namespace

Val Emitter::literal(const Meta&, const void*) {
  fail(ErrorKind::NotImplemented, "literal: this emitter makes no tables of constants.");
}
std::optional<HostValue> Emitter::known(const Val&, const char*) { return std::nullopt; }

Val Emitter::emit1(const char* op, std::initializer_list<Val> in, Attrs attrs) {
  Val out;
  emit(cached_op(op), attrs, std::span<const Val>(in.begin(), in.size()), {&out, 1});
  return out;
}

Val unary(const char* op, const Val& x) { return x.em->emit1(op, {x}); }
Val binary(const char* op, const Val& a, const Val& b) { return a.em->emit1(op, {a, b}); }
Val select(const Val& cond, const Val& a, const Val& b) { return a.em->emit1("where", {cond, a, b}); }
Val scalar_like(const Val& like, double v) { return like.em->constant(v, like.dtype(), like); }

const OpDef& add_op() {
  static const OpDef& add = OpRegistry::global().get("add");
  return add;
}
Val operator+(const Val& a, const Val& b) { return binary("add", a, b); }
Val operator-(const Val& a, const Val& b) { return binary("sub", a, b); }
Val operator*(const Val& a, const Val& b) { return binary("mul", a, b); }
Val operator/(const Val& a, const Val& b) { return binary("div", a, b); }
Val operator-(const Val& a) { return unary("neg", a); }
Val operator+(const Val& a, double b) { return a + scalar_like(a, b); }
Val operator-(const Val& a, double b) { return a - scalar_like(a, b); }
Val operator-(double a, const Val& b) { return scalar_like(b, a) - b; }
Val operator*(const Val& a, double b) { return a * scalar_like(a, b); }
Val operator/(const Val& a, double b) { return a / scalar_like(a, b); }
Val operator/(double a, const Val& b) { return scalar_like(b, a) / b; }

Val cast(const Val& x, DType t) {
  if (x.dtype() == t) return x;
  NamedAttr a{"dtype", t};
  return x.em->emit1("typecvt", {x}, cached_op("typecvt").schema.build("typecvt", {&a, 1}));
}
Val reduce(const Val& x, const char* mode, Ints axes, bool keepdims) {
  return x.em->emit1("reduce", {x}, make_attrs(ReduceAttrs{mode, std::move(axes), keepdims}));
}
Val reshape(const Val& x, const Shape& s) {
  if (x.shape() == s) return x;
  return x.em->emit1("reshape", {x}, make_attrs(ShapeAttrs{to_ints(s)}));
}
Val broadcast_to(const Val& x, const Shape& s) {
  if (x.shape() == s) return x;
  return x.em->emit1("broadcast_to", {x}, make_attrs(ShapeAttrs{to_ints(s)}));
}
Val transpose(const Val& x, Ints perm) { return x.em->emit1("transpose", {x}, make_attrs(PermAttrs{std::move(perm)})); }
Val matmul(const Val& a, const Val& b, bool ta, bool tb) {
  return a.em->emit1("matmul", {a, b}, make_attrs(MatmulAttrs{ta, tb}));
}
Val zeros_like(const Val& x) { return broadcast_to(scalar_like(x, 0), x.shape()); }

Val unbroadcast(const Val& g, const Shape& s) {
  const Shape& from = g.shape();
  if (from == s) return g;
  if (g.dtype() == DType::C64)  // sums are of real numbers
    return binary("complex", unbroadcast(unary("real", g), s), unbroadcast(unary("imag", g), s));
  Ints axes;
  int shift = from.rank - s.rank;
  for (int i = 0; i < from.rank; ++i)
    if (i < shift || (s[i - shift] == 1 && from[i] != 1)) axes.push_back(i);
  Val sum = axes.empty() ? g : reduce(g, "sum", axes, false);
  return reshape(sum, s);
}

}  // namespace mge
