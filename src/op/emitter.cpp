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

// While sizes may change from call to call, an op that does nothing in this one may do something in the next.
bool does_nothing(const Val& x, const Sizes& s) {
  return x.meta().shape == s.now() && !s.operand() && !x.em->any_size(x);
}

}  // namespace

Val Emitter::literal(const Meta&, const void*) {
  fail(ErrorKind::NotImplemented, "literal: this emitter makes no tables of constants.");
}
std::optional<HostValue> Emitter::known(const Val&) { return std::nullopt; }
SizeValue Emitter::size_value(const Val& v, int64_t guess) { return {guess, v}; }

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
Val reshape(const Val& x, const Sizes& s) {
  if (does_nothing(x, s)) return x;
  return x.em->emit1("reshape", {x}, sized_attrs(ShapeAttrs{to_ints(s.now())}, "shape", s));
}
Val broadcast_to(const Val& x, const Sizes& s) {
  if (does_nothing(x, s)) return x;
  return x.em->emit1("broadcast_to", {x}, sized_attrs(ShapeAttrs{to_ints(s.now())}, "shape", s));
}
Val expand_dims(const Val& x, Ints axes) {
  if (axes.empty()) return x;
  return x.em->emit1("expand_dims", {x}, make_attrs(AxesAttrs{std::move(axes)}));
}
Val transpose(const Val& x, Ints perm) { return x.em->emit1("transpose", {x}, make_attrs(PermAttrs{std::move(perm)})); }
Val matmul(const Val& a, const Val& b, bool ta, bool tb) {
  return a.em->emit1("matmul", {a, b}, make_attrs(MatmulAttrs{ta, tb}));
}
Val zeros(const Val& like, const Sizes& s) { return broadcast_to(scalar_like(like, 0), s); }
Val zeros_like(const Val& x) { return zeros(x, x.sizes()); }

Val unbroadcast(const Val& g, const Sizes& s) {
  if (does_nothing(g, s)) return g;
  if (s.operand() || g.em->any_size(g))
    return g.em->emit1("sum_to", {g}, sized_attrs(ShapeAttrs{to_ints(s.now())}, "shape", s));
  return summed_to(g, s.now());
}

Val summed_to(const Val& g, const Shape& s) {
  const Shape& from = g.meta().shape;
  if (from == s) return g;
  if (g.dtype() == DType::C64)  // sums are of real numbers
    return binary("complex", summed_to(unary("real", g), s), summed_to(unary("imag", g), s));
  Ints axes;
  int shift = from.rank - s.rank;
  for (int i = 0; i < from.rank; ++i)
    if (i < shift || (s[i - shift] == 1 && from[i] != 1)) axes.push_back(i);
  Val sum = axes.empty() ? g : reduce(g, "sum", axes, false);
  return reshape(sum, s);
}

Val count_of(const Val& like, const Sizes& s, const Ints& axes) {
  if (s.operand()) return like.em->emit1("count_of", {s.operand()}, make_attrs(CountAttrs{axes, like.dtype()}));
  double count = 1;
  for (int64_t a : axes) count *= static_cast<double>(s.now()[static_cast<int>(a)]);
  return scalar_like(like, count);
}

}  // namespace mge
