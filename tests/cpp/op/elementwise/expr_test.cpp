#include "op/elementwise/expr.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace mge {
namespace {

// A value of any type as the bits of a node: what a code generator's registers would hold.
uint64_t of(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t of(double x) { return std::bit_cast<uint64_t>(x); }
float f32(uint64_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v)); }
double f64(uint64_t v) { return std::bit_cast<double>(v); }
int64_t whole(uint64_t v, ExprType t) { return t == ExprType::I32 ? static_cast<int32_t>(v) : static_cast<int64_t>(v); }

template <class T>
T arithmetic(ExprFn fn, T a, T b, T c) {
  switch (fn) {
    case ExprFn::Add:
      return a + b;
    case ExprFn::Sub:
      return a - b;
    case ExprFn::Mul:
      return a * b;
    case ExprFn::Div:
      return a / b;
    case ExprFn::Neg:
      return -a;
    case ExprFn::Abs:
      return std::fabs(a);
    case ExprFn::Fma:
      return std::fma(a, b, c);
    case ExprFn::Sqrt:
      return std::sqrt(a);
    case ExprFn::Floor:
      return std::floor(a);
    case ExprFn::Ceil:
      return std::ceil(a);
    case ExprFn::Trunc:
      return std::trunc(a);
    case ExprFn::CopySign:
      return std::copysign(a, b);
    case ExprFn::Fmod:
      return std::fmod(a, b);
    default:
      ADD_FAILURE() << "no floating-point operation " << static_cast<int>(fn);
      return a;
  }
}
uint64_t integer(ExprFn fn, ExprType t, uint64_t a, uint64_t b) {
  switch (fn) {
    case ExprFn::Add:
      return a + b;
    case ExprFn::Sub:
      return a - b;
    case ExprFn::Mul:
      return a * b;
    case ExprFn::Div:
      return static_cast<uint64_t>(whole(a, t) / whole(b, t));
    case ExprFn::Neg:
      return 0 - a;
    case ExprFn::Abs:
      return whole(a, t) < 0 ? 0 - a : a;
    case ExprFn::And:
      return a & b;
    case ExprFn::Or:
      return a | b;
    case ExprFn::Xor:
      return a ^ b;
    case ExprFn::Not:
      return a ^ 1;
    case ExprFn::Shl:
      return a << b;
    case ExprFn::Sar:
      return static_cast<uint64_t>(whole(a, t) >> b);
    default:
      ADD_FAILURE() << "no integer operation " << static_cast<int>(fn);
      return a;
  }
}
template <class T>
bool compare(ExprFn fn, T a, T b) {
  return fn == ExprFn::Lt ? a < b : fn == ExprFn::Le ? a <= b : fn == ExprFn::Eq ? a == b : a != b;
}
uint64_t convert(ExprType from, ExprType to, uint64_t v) {
  if (from == ExprType::F64) return of(static_cast<float>(f64(v)));
  if (to == ExprType::F32) return of(static_cast<float>(whole(v, from)));
  if (to == ExprType::F64) return of(static_cast<double>(whole(v, from)));
  return to == ExprType::I32 ? static_cast<uint32_t>(v) : static_cast<uint64_t>(whole(v, from));
}

uint64_t evaluate(const ScalarExpr& e, const uint64_t* in) {
  static std::vector<uint64_t> v;
  v.assign(e.nodes.size(), 0);
  for (size_t i = 0; i < e.nodes.size(); ++i) {
    const ExprNode& n = e.nodes[i];
    auto arg = [&](int k) { return n.in[k] < 0 ? 0 : v[static_cast<size_t>(n.in[k])]; };
    uint64_t a = arg(0), b = arg(1), c = arg(2), r = 0;
    ExprType from = n.in[0] < 0 ? n.type : e.type(n.in[0]);
    if (n.fn == ExprFn::Input)
      r = in[n.bits];
    else if (n.fn == ExprFn::Constant)
      r = n.bits;
    else if (n.fn == ExprFn::Select)
      r = a ? b : c;
    else if (n.fn == ExprFn::BitCast)
      r = a;
    else if (n.fn == ExprFn::Convert)
      r = convert(from, n.type, a);
    else if (n.fn >= ExprFn::Lt && n.fn <= ExprFn::Ne)
      r = from == ExprType::F32   ? compare(n.fn, f32(a), f32(b))
          : from == ExprType::F64 ? compare(n.fn, f64(a), f64(b))
                                  : compare(n.fn, whole(a, from), whole(b, from));
    else if (n.type == ExprType::F32)
      r = of(arithmetic(n.fn, f32(a), f32(b), f32(c)));
    else if (n.type == ExprType::F64)
      r = of(arithmetic(n.fn, f64(a), f64(b), f64(c)));
    else
      r = integer(n.fn, n.type, a, b);
    v[i] = n.type == ExprType::I32 || n.type == ExprType::F32 ? static_cast<uint32_t>(r) : r;
  }
  return v[static_cast<size_t>(e.result)];
}

template <class T>
std::vector<T> floats() {
  using lim = std::numeric_limits<T>;
  std::vector<T> x = {0,
                      1,
                      2,
                      3,
                      0.5,
                      6,
                      9.1f,
                      15,
                      87,
                      88.5f,
                      89,
                      104,
                      150,
                      1e10f,
                      30000,
                      3e4f + 1,
                      1e20f,
                      lim::max(),
                      lim::min(),
                      lim::denorm_min(),
                      lim::min() / 2,
                      lim::infinity(),
                      lim::quiet_NaN(),
                      lim::epsilon(),
                      0.9999999f};
  std::mt19937 rng(7);
  for (int i = 0; i < 40; ++i)
    x.push_back(static_cast<T>(std::ldexp(rng() / 4294967296.0, static_cast<int>(rng() % 12) - 4)));
  for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  for (int i = 0; i < 60; ++i) {  // any bits
    if constexpr (sizeof(T) == 4)
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng())));
    else
      x.push_back(std::bit_cast<double>(static_cast<uint64_t>(rng()) << 32 | rng()));
  }
  return x;
}
template <class T>
std::vector<T> values() {
  if constexpr (std::is_same_v<T, uint8_t>) return {0, 1};
  if constexpr (std::is_same_v<T, int64_t>) {
    std::vector<int64_t> x = {0,  1,   -1,        2,         -2,           3, 5, 6, 7, -7, 31, 32, 63, 64,
                              65, -64, INT64_MIN, INT64_MAX, INT64_MIN + 1};
    std::mt19937 rng(9);
    for (int i = 0; i < 40; ++i)
      x.push_back(static_cast<int64_t>(static_cast<uint64_t>(rng()) << 32 | rng()) >> rng() % 64);
    return x;
  }
  if constexpr (std::is_floating_point_v<T>) return floats<T>();
}
uint64_t as_bits(uint8_t v) { return v; }
uint64_t as_bits(int64_t v) { return static_cast<uint64_t>(v); }
uint64_t as_bits(float v) { return of(v); }
uint64_t as_bits(double v) { return of(v); }
template <class T>
bool same(uint64_t got, T want) {
  if constexpr (std::is_floating_point_v<T>)
    if (want != want) return std::is_same_v<T, float> ? std::isnan(f32(got)) : std::isnan(f64(got));
  return got == as_bits(want);
}

/// The expression of `op` beside the row the reference kernel runs, over every pair (triple) of the values.
template <class T>
void check(const OpDef& op, Compute c) {
  ScalarExpr e = express(op, c);
  ASSERT_EQ(e.refusal, nullptr) << op.name;
  const std::vector<T> x = values<T>();
  const size_t arity = op.scalar->arity, seconds = arity > 1 ? x.size() : 1;
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < seconds; ++j) {
      uint8_t truth = (i + j) % 2;
      const void* in[3] = {&x[i], &x[j], nullptr};
      uint64_t bits[3] = {as_bits(x[i]), as_bits(x[j]), 0};
      if (op.scalar->selects) {
        in[0] = &truth, in[1] = &x[i], in[2] = &x[j];
        bits[0] = truth, bits[1] = as_bits(x[i]), bits[2] = as_bits(x[j]);
      }
      const int64_t stride[3] = {1, 1, 1};
      T want{};
      uint8_t want_bool = 0;
      op.scalar->row[static_cast<int>(c)](in, stride, op.scalar->bool_out ? static_cast<void*>(&want_bool) : &want, 1);
      uint64_t got = evaluate(e, bits);
      bool ok = op.scalar->bool_out ? got == want_bool : same(got, want);
      ASSERT_TRUE(ok) << op.name << " of " << +x[i] << ", " << +x[j] << ": bits " << std::hex << got << " for "
                      << as_bits(want);
    }
}

TEST(Expr, EveryBodyHasTheBitsOfItsKernel) {
  const OpRegistry& r = OpRegistry::global();
  int ops = 0, refused = 0;
  for (size_t id = 0; id < r.size(); ++id) {
    const OpDef& op = r.at(static_cast<OpId>(id));
    if (!op.scalar) continue;
    ++ops;
    if (op.scalar->row[static_cast<int>(Compute::F32)]) check<float>(op, Compute::F32);
    if (op.scalar->row[static_cast<int>(Compute::I64)]) check<int64_t>(op, Compute::I64);
    if (op.scalar->row[static_cast<int>(Compute::Bool)]) check<uint8_t>(op, Compute::Bool);
    if (!op.scalar->row[static_cast<int>(Compute::F64)]) continue;
    ScalarExpr e = express(op, Compute::F64);
    if (e.refusal) {
      EXPECT_STREQ(e.refusal, "float64 functions are those of the C library") << op.name;
      ++refused;
    } else {
      check<double>(op, Compute::F64);
    }
  }
  EXPECT_GT(ops, 70);
  EXPECT_EQ(refused, 30);  // exp, log, sin, … and what is made of them, in float64 only
}

TEST(Expr, WhatHasNoBodyIsRefusedByName) {
  const OpRegistry& r = OpRegistry::global();
  EXPECT_STREQ(express(r.get("typecvt"), Compute::F32).refusal, "the op has no scalar body");
  EXPECT_STREQ(express(r.get("exp"), Compute::I64).refusal, "the op does not take this type");
  EXPECT_STREQ(express(r.get("logical_and"), Compute::F32).refusal, "the op does not take this type");
}

TEST(Expr, EqualNodesAreOne) {
  ScalarExpr e = express(OpRegistry::global().get("square"), Compute::F32);
  ASSERT_EQ(e.nodes.size(), 2u);
  EXPECT_EQ(e.nodes[1].fn, ExprFn::Mul);
  EXPECT_EQ(e.nodes[1].in[0], e.nodes[1].in[1]);
  for (const char* name : {"erfinv", "pow", "tan"}) {
    e = express(OpRegistry::global().get(name), Compute::F32);
    for (size_t i = 0; i < e.nodes.size(); ++i)
      for (int32_t k : e.nodes[i].in) EXPECT_LT(k, static_cast<int32_t>(i)) << name;
  }
}

}  // namespace
}  // namespace mge
