// The types that bodies are instantiated on to be written down (op/elementwise/expr.h): the vocabulary at the top of
// scalar_math.h, found by argument-dependent lookup. A handle is the number of a node in the expression that the thread
// is building.
#pragma once
#include <bit>
#include <string_view>

#include "op/elementwise/expr.h"
#include "op/elementwise/scalar_math.h"

namespace mge::body::expr {

inline thread_local ScalarExpr* t_building = nullptr;

template <ExprType t>
struct Term {
  int32_t id;
  static constexpr ExprType type = t;

  static Term node(ExprFn fn, int32_t a = -1, int32_t b = -1, int32_t c = -1, uint64_t bits = 0) {
    Term r;
    r.id = t_building->add({fn, t, {a, b, c}, bits});
    return r;
  }
  static Term input(uint64_t k) { return node(ExprFn::Input, -1, -1, -1, k); }
  static Term literal(uint64_t bits) { return node(ExprFn::Constant, -1, -1, -1, bits); }

  explicit Term(float x) requires(t == ExprType::F32 || t == ExprType::F64 || t == ExprType::I64)
      : Term(literal(encode(x))) {}
  explicit Term(double x) requires(t == ExprType::F64) : Term(literal(std::bit_cast<uint64_t>(x))) {}
  explicit Term(int32_t x) requires(t == ExprType::I32) : Term(literal(static_cast<uint32_t>(x))) {}
  explicit Term(int64_t x) requires(t == ExprType::I64) : Term(literal(static_cast<uint64_t>(x))) {}

 private:
  Term() = default;
  static uint64_t encode(float x) {
    if constexpr (t == ExprType::F32) return std::bit_cast<uint32_t>(x);
    if constexpr (t == ExprType::F64) return std::bit_cast<uint64_t>(static_cast<double>(x));
    return static_cast<uint64_t>(static_cast<int64_t>(x));
  }
};
using M = Term<ExprType::Bool>;
using I = Term<ExprType::I32>;
using L = Term<ExprType::I64>;
using F = Term<ExprType::F32>;
using D = Term<ExprType::F64>;

template <ExprType t>
constexpr bool kFloating = t == ExprType::F32 || t == ExprType::F64;
template <ExprType t>
constexpr bool kInteger = t == ExprType::I32 || t == ExprType::I64;

#define MGE_TERM2(name, fn) \
  template <ExprType t>     \
  requires(t != ExprType::Bool) Term<t> name(Term<t> a, Term<t> b) { return Term<t>::node(ExprFn::fn, a.id, b.id); }
MGE_TERM2(operator+, Add)
MGE_TERM2(operator-, Sub)
MGE_TERM2(operator*, Mul)
#undef MGE_TERM2
template <ExprType t>
requires(kFloating<t>) Term<t>
operator/(Term<t> a, Term<t> b) { return Term<t>::node(ExprFn::Div, a.id, b.id); }
template <ExprType t>
Term<t> operator-(Term<t> a) {
  return Term<t>::node(ExprFn::Neg, a.id);
}
#define MGE_TERM_BITS(name, fn) \
  template <ExprType t>         \
  requires(kInteger<t>) Term<t> name(Term<t> a, Term<t> b) { return Term<t>::node(ExprFn::fn, a.id, b.id); }
MGE_TERM_BITS(operator&, And)
MGE_TERM_BITS(operator|, Or)
MGE_TERM_BITS(operator^, Xor)
#undef MGE_TERM_BITS

inline M mask_and(M a, M b) { return M::node(ExprFn::And, a.id, b.id); }
inline M mask_or(M a, M b) { return M::node(ExprFn::Or, a.id, b.id); }
inline M mask_xor(M a, M b) { return M::node(ExprFn::Xor, a.id, b.id); }
inline M mask_not(M a) { return M::node(ExprFn::Not, a.id); }
inline bool all_of(M) { return false; }  // unknown, so the way that serves every value is taken
inline bool any_of(M) { return true; }

// false comes before true
template <ExprType t>
M operator<(Term<t> a, Term<t> b) {
  if constexpr (t == ExprType::Bool)
    return mask_and(mask_not(a), b);
  else
    return M::node(ExprFn::Lt, a.id, b.id);
}
template <ExprType t>
M operator<=(Term<t> a, Term<t> b) {
  if constexpr (t == ExprType::Bool)
    return mask_or(mask_not(a), b);
  else
    return M::node(ExprFn::Le, a.id, b.id);
}
template <ExprType t>
M operator==(Term<t> a, Term<t> b) {
  if constexpr (t == ExprType::Bool)
    return mask_not(mask_xor(a, b));
  else
    return M::node(ExprFn::Eq, a.id, b.id);
}
template <ExprType t>
M operator!=(Term<t> a, Term<t> b) {
  if constexpr (t == ExprType::Bool)
    return mask_xor(a, b);
  else
    return M::node(ExprFn::Ne, a.id, b.id);
}
template <ExprType t>
M operator>(Term<t> a, Term<t> b) {
  return b < a;
}
template <ExprType t>
M operator>=(Term<t> a, Term<t> b) {
  return b <= a;
}
template <ExprType t>
Term<t> select(M m, Term<t> a, Term<t> b) {
  return Term<t>::node(ExprFn::Select, m.id, a.id, b.id);
}

#define MGE_TERM1(name, fn) \
  template <ExprType t>     \
  requires(kFloating<t>) Term<t> name(Term<t> x) { return Term<t>::node(ExprFn::fn, x.id); }
MGE_TERM1(sqrt, Sqrt)
MGE_TERM1(floor, Floor)
MGE_TERM1(ceil, Ceil)
MGE_TERM1(trunc, Trunc)
#undef MGE_TERM1
template <ExprType t>
Term<t> abs(Term<t> x) {
  return Term<t>::node(ExprFn::Abs, x.id);
}
template <ExprType t>
Term<t> copysign(Term<t> m, Term<t> s) {
  return Term<t>::node(ExprFn::CopySign, m.id, s.id);
}
inline F fma(F a, F b, F c) { return F::node(ExprFn::Fma, a.id, b.id, c.id); }

inline I bits(F x) { return I::node(ExprFn::BitCast, x.id); }
inline F from_bits(I x) { return F::node(ExprFn::BitCast, x.id); }
inline F to_float(I x) { return F::node(ExprFn::Convert, x.id); }
template <int k>
I shl(I a) {
  return I::node(ExprFn::Shl, a.id, I(k).id);
}
template <int k>
I sar(I a) {
  return I::node(ExprFn::Sar, a.id, I(k).id);
}
inline L shl_by(L a, L n) { return L::node(ExprFn::Shl, a.id, n.id); }
inline L sar_by(L a, L n) { return L::node(ExprFn::Sar, a.id, n.id); }
inline L quotient(L a, L b) { return L::node(ExprFn::Div, a.id, b.id); }
inline L widen(I a) { return L::node(ExprFn::Convert, a.id); }
inline I low_word(L a) { return I::node(ExprFn::Convert, a.id); }
inline F scaled(L a, double c) {
  D d = D::node(ExprFn::Convert, a.id) * D(c);
  return F::node(ExprFn::Convert, d.id);
}
// A table of sixteen as a tree of selects over the bits of the index.
inline L look_up(const uint32_t* table, I i) {
  L level[16] = {L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}),
                 L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0}),
                 L(int64_t{0}), L(int64_t{0}), L(int64_t{0}), L(int64_t{0})};
  for (int k = 0; k < 16; ++k) level[k] = L(int64_t{table[k]});
  for (int bit = 0; bit < 4; ++bit) {
    M odd = (i & I(1 << bit)) != I(0);
    for (int k = 0; k < 8 >> bit; ++k) level[k] = select(odd, level[2 * k + 1], level[2 * k]);
  }
  return level[0];
}
void reduce_huge_lanes(M m, F x, F& r, I& n);
inline F fmod_lanes(M m, F x, F y, F r) { return select(m, F::node(ExprFn::Fmod, x.id, y.id), r); }

// V = double is the C library where it is more than arithmetic.
inline D fmod(D x, D y) { return D::node(ExprFn::Fmod, x.id, y.id); }
constexpr uint64_t library_function(std::string_view name) {
  uint64_t k = 0;
  while (kLibraryFunctions[k] != name) ++k;
  return k;
}
inline D library(uint64_t function, D x, int32_t y = -1) {
  t_building->calls_library = true;
  return D::node(ExprFn::Library, x.id, y, -1, function);
}
#define MGE_LIBRARY(name) \
  inline D name(D x) { return library(library_function(#name), x); }
MGE_LIBRARY(exp)
MGE_LIBRARY(expm1)
MGE_LIBRARY(log)
MGE_LIBRARY(log1p)
MGE_LIBRARY(sin)
MGE_LIBRARY(cos)
MGE_LIBRARY(tan)
MGE_LIBRARY(asin)
MGE_LIBRARY(acos)
MGE_LIBRARY(atan)
MGE_LIBRARY(sinh)
MGE_LIBRARY(cosh)
MGE_LIBRARY(tanh)
MGE_LIBRARY(sigmoid)
MGE_LIBRARY(asinh)
MGE_LIBRARY(acosh)
MGE_LIBRARY(atanh)
MGE_LIBRARY(erf)
MGE_LIBRARY(erfc)
MGE_LIBRARY(gelu)
MGE_LIBRARY(gelu_slope)
#undef MGE_LIBRARY
inline D pow(D x, D y) { return library(library_function("power"), x, y.id); }
inline D atan2(D y, D x) { return library(library_function("atan2"), y, x.id); }

}  // namespace mge::body::expr

namespace mge::body::scalar {
template <>
struct IntOf<expr::F> {
  using type = expr::I;
};
template <>
inline constexpr bool kWhole<expr::L> = true;
template <>
inline constexpr bool kWhole<expr::M> = true;
template <>
inline constexpr bool kDouble<expr::D> = true;
}  // namespace mge::body::scalar
