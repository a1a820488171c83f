// Elementary functions, written once for every engine. V is float here, a SIMD vector in kernel/simd, an expression in
// op/elementwise/expr.h (what a code generator emits); all give the same bits, because a body uses only + - * /, fma,
// comparisons, select, rounding and bit casts, and the tree is compiled with -ffp-contract=off. V = double calls the C
// library instead: float64 exists for gradient checks.
//
// Accuracy for float (see tests/cpp/kernel/elementwise/elementwise_test.cpp): 1 ulp for exp and log, 2.4 for tanh, 2-4
// for the rest, 5.7 for gelu; pow(x,2) is x*x and pow(x,3) is x*x*x exactly. Polynomials are minimax fits on the stated
// interval, coefficients rounded to float one by one with a refit of the rest.
//
// The file is read once per instruction set: kernel/simd defines MGE_BODY_TARGET to its namespace and includes it
// again, so that the templates are compiled with that set's code generation.
#if !defined(MGE_OP_SCALAR_MATH_H_) || defined(MGE_BODY_TARGET)
#undef MGE_BODY_NAMESPACE
#ifdef MGE_BODY_TARGET
#define MGE_BODY_NAMESPACE MGE_BODY_TARGET
#else
#define MGE_OP_SCALAR_MATH_H_
#define MGE_BODY_NAMESPACE scalar
#endif
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace mge::body::MGE_BODY_NAMESPACE {

// ---- the vocabulary for V = float: what a SIMD wrapper or a JIT expression must provide as well ----

struct I32 {  // wraps on overflow
  int32_t v;
  constexpr explicit I32(int32_t x) : v(x) {}
  constexpr explicit I32(uint32_t x) : v(static_cast<int32_t>(x)) {}
};
constexpr I32 operator+(I32 a, I32 b) { return I32(static_cast<uint32_t>(a.v) + static_cast<uint32_t>(b.v)); }
constexpr I32 operator-(I32 a, I32 b) { return I32(static_cast<uint32_t>(a.v) - static_cast<uint32_t>(b.v)); }
constexpr I32 operator&(I32 a, I32 b) { return I32(a.v & b.v); }
constexpr I32 operator|(I32 a, I32 b) { return I32(a.v | b.v); }
constexpr I32 operator^(I32 a, I32 b) { return I32(a.v ^ b.v); }
constexpr bool operator==(I32 a, I32 b) { return a.v == b.v; }
constexpr bool operator<(I32 a, I32 b) { return a.v < b.v; }
template <int k>
constexpr I32 shl(I32 a) {
  return I32(static_cast<uint32_t>(a.v) << k);
}
template <int k>
constexpr I32 sar(I32 a) {
  return I32(a.v >> k);
}

template <class V>
struct IntOf;
template <>
struct IntOf<float> {
  using type = I32;
};
template <class V>
using Int = typename IntOf<V>::type;

inline I32 bits(float x) { return I32(std::bit_cast<int32_t>(x)); }
inline float from_bits(I32 x) { return std::bit_cast<float>(x.v); }
inline float to_float(I32 x) { return static_cast<float>(x.v); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline float trunc(float x) { return __builtin_truncf(x); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline float copysign(float m, float s) { return __builtin_copysignf(m, s); }
template <class V>
inline V select(bool m, V a, V b) {
  return m ? a : b;
}
inline bool mask_and(bool a, bool b) { return a & b; }
inline bool mask_or(bool a, bool b) { return a | b; }
inline bool mask_xor(bool a, bool b) { return a ^ b; }
inline bool mask_not(bool a) { return !a; }
inline bool any_of(bool m) { return m; }  // some lane of a vector
inline bool all_of(bool m) { return m; }  // may always say no: what it guards is a shorter way to the same bits

// ---- V = Int64: every integer dtype computes in 64 bits and wraps when stored ----

struct Int64 {
  int64_t v;
  constexpr explicit Int64(int64_t x) : v(x) {}
  constexpr explicit Int64(uint64_t x) : v(static_cast<int64_t>(x)) {}
  constexpr explicit Int64(float x) : v(static_cast<int64_t>(x)) {}
};
constexpr uint64_t to_u64(Int64 a) { return static_cast<uint64_t>(a.v); }
constexpr Int64 operator+(Int64 a, Int64 b) { return Int64(to_u64(a) + to_u64(b)); }
constexpr Int64 operator-(Int64 a, Int64 b) { return Int64(to_u64(a) - to_u64(b)); }
constexpr Int64 operator*(Int64 a, Int64 b) { return Int64(to_u64(a) * to_u64(b)); }
constexpr Int64 operator-(Int64 a) { return Int64(0 - to_u64(a)); }
constexpr Int64 operator&(Int64 a, Int64 b) { return Int64(a.v & b.v); }
constexpr Int64 operator|(Int64 a, Int64 b) { return Int64(a.v | b.v); }
constexpr bool operator<(Int64 a, Int64 b) { return a.v < b.v; }
constexpr bool operator<=(Int64 a, Int64 b) { return a.v <= b.v; }
constexpr bool operator>(Int64 a, Int64 b) { return a.v > b.v; }
constexpr bool operator==(Int64 a, Int64 b) { return a.v == b.v; }
constexpr bool operator!=(Int64 a, Int64 b) { return a.v != b.v; }
constexpr Int64 abs(Int64 a) { return a.v < 0 ? -a : a; }
constexpr Int64 shl_by(Int64 a, Int64 n) { return Int64(to_u64(a) << n.v); }  // n in 0..63
constexpr Int64 sar_by(Int64 a, Int64 n) { return Int64(a.v >> n.v); }
constexpr Int64 quotient(Int64 a, Int64 b) { return Int64(a.v / b.v); }  // towards zero; b is neither 0 nor -1
constexpr Int64 widen(I32 a) { return Int64(int64_t{a.v}); }
constexpr I32 low_word(Int64 a) { return I32(static_cast<uint32_t>(a.v)); }
/// a * c rounded to double, then to float.
inline float scaled(Int64 a, double c) { return static_cast<float>(static_cast<double>(a.v) * c); }
/// table[i] for 0 <= i < 16.
inline Int64 look_up(const uint32_t* table, I32 i) { return Int64(int64_t{table[i.v]}); }

/// Whole numbers, for which rounding is nothing; and truth.
template <class V>
constexpr bool kWhole = false;
template <>
inline constexpr bool kWhole<Int64> = true;
template <>
inline constexpr bool kWhole<bool> = true;
template <class V>
concept WholeNumber = kWhole<V>;

/// Division by zero gives 0, as in NumPy; INT64_MIN / -1 wraps.
template <class V>
inline V floor_div(V a, V b) {
  const V zero(0.f), one(1.f);
  auto none = b == zero, minus = b == V(-1.f);
  V d = select(mask_or(none, minus), one, b), q = quotient(a, d);
  auto down = mask_and(q * d != a, mask_xor(a < zero, d < zero));
  return select(none, zero, select(minus, -a, select(down, q - one, q)));
}
template <class V>
inline V mod(V a, V b) {
  return select(b == V(0.f), b, a - floor_div(a, b) * b);
}
/// A count outside 0..63 shifts everything out.
template <class V>
inline V shift_left(V a, V b) {
  auto out = mask_or(b < V(0.f), V(63.f) < b);
  return select(out, V(0.f), shl_by(a, select(out, V(0.f), b)));
}
template <class V>
inline V shift_right(V a, V b) {
  return sar_by(a, select(mask_or(b < V(0.f), V(63.f) < b), V(63.f), b));
}

// Argument reduction of sin, cos and tan for |x| beyond what three fma steps handle: x = n*pi/2 + r with 96 bits of
// 2/pi.
template <class V>
inline void reduce_huge(V x, V& r, Int<V>& n) {
  using I = Int<V>;
  using W = decltype(widen(n));
  // kInvPio2[i] = floor(2/pi * 2^(8(i+1))) mod 2^32
  static constexpr uint32_t kInvPio2[24] = {0xa2,       0xa2f9,     0xa2f983,   0xa2f9836e, 0xf9836e4e, 0x836e4e44,
                                            0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1,
                                            0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62,
                                            0xc0db6295, 0xdb629599, 0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041};
  I u = bits(x), at = sar<26>(u) & I(15);
  W m = shl_by(widen((u & I(0xffffff)) | I(0x800000)), widen(sar<23>(u) & I(7)));  // below 2^31
  auto shift = [](int64_t k) { return W(k); };
  W acc = shl_by(m * look_up(kInvPio2, at), shift(32));
  acc = acc | sar_by(m * look_up(kInvPio2 + 8, at), shift(32));
  acc = acc + m * look_up(kInvPio2 + 4, at);
  W q = sar_by(acc + W(int64_t{1} << 61), shift(62)) & W(int64_t{3});
  acc = acc - shl_by(q, shift(62));
  V f = scaled(acc, 0x1.921fb54442d18p-62);  // pi/2 * 2^-62
  auto negative = u < I(0), finite = (u & I(0x7f800000)) < I(0x7f800000);
  r = select(finite, select(negative, -f, f), V(std::numeric_limits<float>::quiet_NaN()));
  n = select(finite, select(negative, I(0) - low_word(q), low_word(q)), I(0));
}
inline void reduce_huge_lanes(bool m, float x, float& r, I32& n) {
  if (m) reduce_huge(x, r, n);
}
inline float fmod_lanes(bool m, float x, float y, float r) { return m ? __builtin_fmodf(x, y) : r; }

// ---- V = double: the C library ----

inline double sqrt(double x) { return std::sqrt(x); }
inline double floor(double x) { return std::floor(x); }
inline double ceil(double x) { return std::ceil(x); }
inline double trunc(double x) { return std::trunc(x); }
inline double abs(double x) { return std::fabs(x); }
inline double copysign(double m, double s) { return std::copysign(m, s); }
inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double tan(double x) { return std::tan(x); }
inline double asin(double x) { return std::asin(x); }
inline double acos(double x) { return std::acos(x); }
inline double atan(double x) { return std::atan(x); }
inline double sinh(double x) { return std::sinh(x); }
inline double cosh(double x) { return std::cosh(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
inline double asinh(double x) { return std::asinh(x); }
inline double acosh(double x) { return std::acosh(x); }
inline double atanh(double x) { return std::atanh(x); }
inline double erf(double x) { return std::erf(x); }
inline double erfc(double x) { return std::erfc(x); }
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
inline double gelu(double x) { return x * normal_cdf(x); }
inline double gelu_slope(double x) { return normal_cdf(x) + x * std::exp(-0.5 * x * x) * 0.39894228040143267794; }
inline double atan2(double y, double x) { return std::atan2(y, x); }
inline double fmod(double x, double y) { return std::fmod(x, y); }
inline double pow(double x, double y) { return y == 2 ? x * x : y == 3 ? x * x * x : std::pow(x, y); }

// ---- the functions, for V = float and vectors of it ----

/// A constant that float64 takes in full.
template <class V>
constexpr bool kDouble = std::is_same_v<V, double>;
template <class V>
inline V constant(double c) {
  if constexpr (kDouble<V>)
    return V(c);
  else
    return V(static_cast<float>(c));
}
template <class V>
constexpr float kInf = std::numeric_limits<float>::infinity();
template <class V>
inline V nan_v() {
  return V(std::numeric_limits<float>::quiet_NaN());
}
/// NaN in either operand gives NaN.
template <class V>
inline V maximum(V a, V b) {
  return select(mask_or(a > b, a != a), a, b);
}
template <class V>
inline V minimum(V a, V b) {
  return select(mask_or(b > a, a != a), a, b);
}
/// x, but at most / at least c; NaN stays. One instruction where max and min are.
template <class V>
inline V at_most(V c, V x) {
  return select(c < x, c, x);
}
template <class V>
inline V at_least(V c, V x) {
  return select(c > x, c, x);
}
/// c0 + c1 x + c2 x^2 + … by Horner's rule with fma.
template <class V>
inline V poly(V, float c) {
  return V(c);
}
template <class V, class... C>
inline V poly(V x, float c0, C... c) {
  return fma(poly(x, c...), x, V(c0));
}
/// 2^n * p for |p| in [0.5, 4), -160 <= n <= 140, with one rounding when the result is subnormal.
template <class V>
inline V scale2(V p, Int<V> n) {
  using I = Int<V>;
  I a = sar<1>(n), b = n - a;
  return p * from_bits(shl<23>(a + I(127))) * from_bits(shl<23>(b + I(127)));
}

// exp(x) = 2^n p, p in [0.7, 1.42]. x = n*ln2 + r, |r| <= ln2/2, exp(r) = 1 + r + r^2 q(r). n stays where rounding left
// it, in the low bits of n_bits. For |x| below 150.
constexpr float kRound = 0x1.8p23f;  // adding it leaves round(x) in the low mantissa bits
template <class V>
inline V expm1_of_rest(V r) {
  V q = poly(r, 0x1p-1f, 0x1.555486p-3f, 0x1.5554d4p-5f, 0x1.1241d0p-7f, 0x1.6d649ap-10f);
  return fma(r * r, q, r);
}
template <class V>
inline V exp_of_rest(V r) {
  return V(1.f) + expm1_of_rest(r);
}
template <class V>
inline V exp_fraction(V x, V& n_bits) {
  n_bits = fma(x, V(0x1.715476p+0f), V(kRound));
  V k = n_bits - V(kRound);
  V r = fma(k, V(-0x1.62e430p-1f), x);
  return exp_of_rest(fma(k, V(0x1.05c610p-29f), r));
}
// 2^n p for such a pair. One addition to the exponent does for lanes that give normal numbers; when some lane does not,
// all take the longer way, which gives the same bits for the others. What would round to 0 is 0 at once: Intel's cores
// take over a hundred cycles for such a product, and masks of attention are made of them.
template <class V, class M>
inline V exp_join(V p, V n_bits, M normal) {
  if (all_of(normal)) return from_bits(bits(p) + shl<23>(bits(n_bits)));
  return scale2(select(n_bits - V(kRound) < V(-150.f), V(0.f), p), bits(n_bits) - bits(V(kRound)));
}
template <class V>
inline V exp(V x) {
  V n(0.f), c = at_least(V(-105.f), at_most(V(89.f), x)), p = exp_fraction(c, n);
  return exp_join(p, n, abs(c) <= V(87.f));
}
// exp(hi + lo), |lo| tiny.
template <class V>
inline V exp_sum(V hi, V lo) {
  V x = at_least(V(-105.f), at_most(V(89.f), hi)), n = fma(x, V(0x1.715476p+0f), V(kRound)), k = n - V(kRound);
  V r = fma(k, V(-0x1.62e430p-1f), x);
  r = fma(k, V(0x1.05c610p-29f), r);
  return exp_join(exp_of_rest(r + lo), n, abs(x) <= V(87.f));
}

template <class V>
inline V expm1(V v) {
  const V round(0x1.8p23f);
  V x = select(v > V(89.f), V(89.f), select(v < V(-18.f), V(-18.f), v));
  V t = fma(x, V(0x1.715476p+0f), round);
  Int<V> n = bits(t) - bits(round);
  V k = t - round;
  V r = fma(k, V(-0x1.62e430p-1f), x);
  r = fma(k, V(0x1.05c610p-29f), r);
  V q = poly(r, 0x1p-1f, 0x1.555556p-3f, 0x1.5554ecp-5f, 0x1.110fdep-7f, 0x1.6d4954p-10f, 0x1.a296ecp-13f);
  V p = fma(r * r, q, r);  // exp(r) - 1
  // 2^n p + (2^n - 1), halved so that n = 128 does not overflow on the way.
  V half = from_bits(shl<23>(n + Int<V>(126)));
  V y = fma(half, p, half - V(0.5f)) * V(2.f);
  return select(k == V(0.f), select(x == V(0.f), v, p), y);
}

// log((1+f) * 2^k) for 1+f in [sqrt(1/2), sqrt(2)]: log(1+f) = f - f^2/2 + f^3 q(f).
template <class V>
inline V log_core(V f, V k) {
  V q = poly(f, 0x1.555546p-2f, -0x1.ffffeep-3f, 0x1.99a54ap-3f, -0x1.5562e8p-3f, 0x1.233208p-3f, -0x1.fb4100p-4f,
             0x1.e65d0ep-4f, -0x1.e30000p-4f, 0x1.1b3e04p-4f);
  V y = (f * f) * fma(f, q, V(-0.5f));
  y = fma(k, V(-0x1.05c610p-29f), y);
  return fma(k, V(0x1.62e430p-1f), f + y);
}
// x = 2^k * m, m in [sqrt(1/2), sqrt(2)), for positive finite x.
template <class V>
inline V split_exponent(V x, V& k) {
  using I = Int<V>;
  auto tiny = x < V(0x1p-126f);
  x = select(tiny, x * V(0x1p23f), x);
  I n = sar<23>(bits(x) - I(0x3f3504f3));
  k = to_float(n) - select(tiny, V(23.f), V(0.f));
  return from_bits(bits(x) - shl<23>(n));
}
template <class V>
inline V log(V x) {
  V k(0.f);
  V m = split_exponent(x, k);
  V y = log_core(m - V(1.f), k);
  y = select(x < V(kInf<V>), y, x);  // inf and NaN
  y = select(x == V(0.f), V(-kInf<V>), y);
  return select(x < V(0.f), nan_v<V>(), y);
}
template <class V>
inline V log1p(V x) {
  V u = V(1.f) + x, k(0.f);
  V m = split_exponent(u, k);
  // What rounding 1+x lost, relative to m's scale; for k = 0 this makes f exactly x.
  V c = select(u > V(2.f), V(1.f) - (u - x), x - (u - V(1.f)));
  V f = (m - V(1.f)) + select(u < V(0x1p60f), c * (m / u), V(0.f));
  V y = log_core(select(k == V(0.f), x, f), k);
  y = select(x < V(kInf<V>), y, x);
  y = select(x == V(0.f), x, y);
  y = select(x == V(-1.f), V(-kInf<V>), y);
  return select(x < V(-1.f), nan_v<V>(), y);
}

// tanh(a) = m / (m + 2) with m = exp(2a) - 1 = 2^n p + (2^n - 1). From 9.1 on it is 1; up to there n is at most 26, and
// what n*ln2 loses to rounding does not reach the result.
template <class V>
inline V tanh(V x) {
  V a = at_most(V(9.1f), abs(x)), c = a + a, n = fma(c, V(0x1.715476p+0f), V(kRound));
  V p = expm1_of_rest(fma(n - V(kRound), V(-0x1.62e430p-1f), c));
  V scale = from_bits(shl<23>(bits(n)) + bits(V(1.f)));
  V m = fma(scale, p, scale - V(1.f));
  return copysign(m / (m + V(2.f)), x);
}
template <class V>
inline V sigmoid(V x) {
  V n(0.f), c = at_least(V(-105.f), -abs(x)), p = exp_fraction(c, n);
  V e = exp_join(p, n, c >= V(-87.f));
  return select(x < V(0.f), e, V(1.f)) / (V(1.f) + e);
}
template <class V>
inline V sinh(V x) {
  V a = abs(x), z = x * x;
  V q = poly(z, 0x1.555556p-3f, 0x1.1110ecp-7f, 0x1.a01ad0p-13f, 0x1.76ac86p-19f);
  V small = fma(x * z, q, x);  // |x| < 1
  V e = exp(a), h = exp(V(0.5f) * a);
  V big = select(a > V(88.f), (V(0.5f) * h) * h, V(0.5f) * e - V(0.5f) / e);
  return select(a < V(1.f), select(x == V(0.f), x, small), copysign(big, x));
}
template <class V>
inline V cosh(V x) {
  V a = abs(x), e = exp(a), h = exp(V(0.5f) * a);
  return select(a > V(88.f), (V(0.5f) * h) * h, V(0.5f) * e + V(0.5f) / e);
}
template <class V>
inline V asinh(V x) {
  V a = abs(x), z = a * a;
  V y = log1p(a + z / (V(1.f) + sqrt(z + V(1.f))));
  V big = log(a) + V(0x1.62e430p-1f);
  return copysign(select(a < V(0x1p20f), y, select(a == a, big, a)), x);
}
template <class V>
inline V acosh(V x) {
  V t = x - V(1.f);
  V y = log1p(t + sqrt(fma(t, t, t + t)));
  y = select(x < V(0x1p20f), y, log(x) + V(0x1.62e430p-1f));
  return select(x < V(1.f), nan_v<V>(), y);
}
template <class V>
inline V atanh(V x) {
  V a = abs(x);
  V y = V(0.5f) * log1p((a + a) / (V(1.f) - a));
  return copysign(select(a < V(0x1p-12f), a, y), x);
}

// erf(x) = x + x q(x^2) for |x| <= 1.
template <class V>
inline V erf_small(V x) {
  V q = poly(x * x, 0x1.06eba8p-3f, -0x1.812740p-2f, 0x1.ce2d52p-4f, -0x1.b7fec4p-6f, 0x1.542fecp-8f, -0x1.a5197ap-11f,
             0x1.4c5cb4p-14f);
  return fma(x, q, x);
}
// erfc(t) = exp(-t^2) P(u) / (1 + 2t) with u = (t-2)/(t+2), for t >= 0.7; 0 from t = 10.2 on. The square is passed in
// two parts, s + lo = t^2: its error would count t^2 times.
template <class V>
inline V erfc_big(V t, V s, V lo) {
  V u = (t - V(2.f)) / (t + V(2.f));
  V p = poly(u, 0x1.46e80ep+0f, -0x1.7bf5dep-4f, -0x1.540778p-3f, 0x1.4ff8b8p-3f, -0x1.bc3cf8p-5f, -0x1.05fe1ep-7f,
             0x1.1f1ed6p-7f, 0x1.14083ap-10f, -0x1.802342p-10f);
  V y = exp_sum(-s, -lo) * (p / fma(V(2.f), t, V(1.f)));
  return select(t > V(10.2f), V(0.f), y);
}
template <class V>
inline V erf(V x) {
  V a = abs(x), s = a * a;
  V y = select(a > V(4.f), V(1.f), V(1.f) - erfc_big(a, s, fma(a, a, -s)));
  return select(a > V(1.f), copysign(y, x), select(x == V(0.f), x, erf_small(x)));
}
template <class V>
inline V erfc(V x) {
  V a = abs(x), s = a * a, tail = erfc_big(a, s, fma(a, a, -s));
  return select(a > V(1.f), select(x < V(0.f), V(2.f) - tail, tail), V(1.f) - erf_small(x));
}
// Inverses of erf and erfc: Winitzki's closed form, good to 0.2 %, then Halley's steps, each of which triples the
// digits. `l` is log(1 - erf(y)^2) of the y that is wanted.
template <class V>
inline V erfinv_guess(V l) {
  const V a = constant<V>(0.147);
  V t = constant<V>(4.33074675) + V(0.5f) * l, s = sqrt(t * t - l / a);
  return sqrt(select(t > V(0.f), (-l / a) / (s + t), s - t));
}
template <class V>
inline V erfinv_step(V y, V excess) {  // excess = erf(y) - wanted
  V u = excess / exp(-y * y) * constant<V>(0.88622692545275801365);
  return y - u / (V(1.f) + y * u);
}
template <class V>
inline V erfinv_centre(V x) {  // |x| <= 0.5
  V y = copysign(erfinv_guess(log1p(-x * x)), x);
  for (int i = 0; i < 3; ++i) y = erfinv_step(y, erf(y) - x);
  return select(x == V(0.f), x, y);
}
template <class V>
inline V erfcinv_tail(V q) {  // 0 < q <= 0.5
  V y = erfinv_guess(log(q) + log(V(2.f) - q));
  for (int i = 0; i < 3; ++i) y = erfinv_step(y, q - erfc(y));
  return select(q == V(0.f), V(kInf<V>), y);
}
template <class V>
inline V erfinv(V x) {
  V a = abs(x);
  return select(a > V(0.5f), copysign(erfcinv_tail(V(1.f) - a), x), erfinv_centre(x));
}
template <class V>
inline V erfcinv(V q) {
  V high = select(q < V(1.f), erfcinv_tail(q), -erfcinv_tail(V(2.f) - q));
  V x = V(1.f) - q;
  return select(abs(x) >= V(0.5f), high, erfinv_centre(x));
}
// The normal distribution from its upper tail: for 0 <= a <= 15 the density is c exp(-a^2/2) = c 2^n p, and P(N(0,1) >
// a) is ratio * 2^n p. The ratio of two polynomials is good to 1e-8 up to 14.5, where all that follows is 0 or
// subnormal; their coefficients are positive, so nothing cancels.
template <class V>
inline V normal_parts(V a, V& n_bits, V& ratio) {
  n_bits = fma(a * a, V(-0x1.715476p-1f), V(kRound));
  V k = n_bits - V(kRound);
  // The square is exact inside the fma (its error would count a^2 times), and so is n times the first 16 bits of ln2.
  V r = fma(a, V(-0.5f) * a, k * V(-0x1.62e4p-1f));
  ratio = poly(a, 0x1p-1f, 0x1.c0d0e8p-2f, 0x1.7744acp-3f, 0x1.4cdee2p-5f, 0x1.0dc4f0p-8f) /
          poly(a, 1.f, 0x1.acaaa4p+0f, 0x1.33d7a0p+0f, 0x1.e0bdcep-2f, 0x1.a137c6p-4f, 0x1.521a0cp-7f);
  return exp_of_rest(fma(k, V(-0x1.7f7d1cp-20f), r));
}
/// x times P(N(0,1) <= x): what is above 0, less |x| times the tail, for either sign.
template <class V>
inline V gelu(V x) {
  V a = at_most(V(15.f), abs(x)), n(0.f), ratio(0.f), p = normal_parts(a, n, ratio);
  return select(x < V(0.f), V(0.f), x) - exp_join(p * (a * ratio), n, a <= V(13.f));
}
/// Its derivative, P(N(0,1) <= x) + x density(x).
template <class V>
inline V gelu_slope(V x) {
  V c = at_least(V(-15.f), at_most(V(15.f), x)), a = abs(c), n(0.f), ratio(0.f), p = normal_parts(a, n, ratio);
  auto normal = a <= V(12.8f);
  V tail = exp_join(p * ratio, n, normal), density = exp_join(p, n, normal) * constant<V>(0.39894228040143267794);
  return select(x < V(0.f), tail, V(1.f) - tail) + c * density;
}

// x = n*pi/2 + r, |r| <= pi/4.
template <class V>
inline void reduce_pio2(V x, V& r, Int<V>& n) {
  const V round(0x1.8p23f);
  auto ok = abs(x) <= V(30000.f);
  V t = fma(select(ok, x, V(0.f)), V(0x1.45f306p-1f), round);
  V k = t - round;
  n = bits(t) - bits(round);
  r = fma(k, V(-0x1.921fb6p+0f), x);
  r = fma(k, V(0x1.777a5cp-25f), r);
  r = fma(k, V(0x1.ee59dap-50f), r);
  if (!all_of(ok)) reduce_huge_lanes(mask_not(ok), x, r, n);
}
template <class V>
inline V sin_poly(V r) {
  V z = r * r;
  return fma(r * z, poly(z, -0x1.555546p-3f, 0x1.11077cp-7f, -0x1.99558ap-13f), r);
}
template <class V>
inline V cos_poly(V r) {
  V z = r * r;
  return fma(z, fma(z, poly(z, 0x1.55554ap-5f, -0x1.6c0c2cp-10f, 0x1.99e9d4p-16f), V(-0.5f)), V(1.f));
}
template <class V>
inline V sin(V x) {
  using I = Int<V>;
  V r(0.f);
  I n(0);
  reduce_pio2(x, r, n);
  V y = select((n & I(1)) == I(0), sin_poly(r), cos_poly(r));
  y = from_bits(bits(y) ^ shl<30>(n & I(2)));
  return select(x == V(0.f), x, y);
}
template <class V>
inline V cos(V x) {
  using I = Int<V>;
  V r(0.f);
  I n(0);
  reduce_pio2(x, r, n);
  V y = select((n & I(1)) == I(0), cos_poly(r), sin_poly(r));
  return from_bits(bits(y) ^ shl<30>((n + I(1)) & I(2)));
}
template <class V>
inline V tan(V x) {
  using I = Int<V>;
  V r(0.f);
  I n(0);
  reduce_pio2(x, r, n);
  V z = r * r;
  V q = poly(z, 0x1.555562p-2f, 0x1.110d28p-3f, 0x1.baec7cp-5f, 0x1.5c0f2ep-6f, 0x1.662676p-7f, -0x1.96a868p-16f,
             0x1.225592p-8f);
  V y = fma(r * z, q, r);
  return select((n & I(1)) == I(0), select(x == V(0.f), x, y), V(-1.f) / y);
}

// asin(s) = s + s z q(z) with z = s^2 <= 1/4.
template <class V>
inline V asin_poly(V s, V z) {
  V q = poly(z, 0x1.55554cp-3f, 0x1.3338a2p-4f, 0x1.6ca9ccp-5f, 0x1.04b86ap-5f, 0x1.d6f758p-7f, 0x1.340e64p-5f);
  return fma(s * z, q, s);
}
template <class V>
inline V asin(V x) {
  V a = abs(x);
  auto big = a > V(0.5f);
  V z = select(big, fma(V(-0.5f), a, V(0.5f)), a * a);
  V s = select(big, sqrt(z), a);
  V p = asin_poly(s, z);
  V y = select(big, fma(V(-2.f), p, V(0x1.921fb6p+0f)), p);
  return copysign(y, x);
}
template <class V>
inline V acos(V x) {
  V a = abs(x);
  auto big = a > V(0.5f);
  V z = select(big, fma(V(-0.5f), a, V(0.5f)), a * a);
  V s = select(big, sqrt(z), x);
  V p = asin_poly(s, z);
  V edge = select(x < V(0.f), fma(V(-2.f), p, V(0x1.921fb6p+1f)), p + p);
  return select(big, edge, V(0x1.921fb6p+0f) - (p + V(0x1.777a5cp-25f)));
}

// atan(x) = x + x^3 q(x^2) for |x| <= 1.
template <class V>
inline V atan_poly(V x) {
  V z = x * x;
  V q = poly(z, -0x1.555540p-2f, 0x1.99926ap-3f, -0x1.24267ap-3f, 0x1.c0cd8ap-4f, -0x1.58ce58p-4f, 0x1.dcdfcap-5f,
             -0x1.0181c0p-5f, 0x1.6a2f4ap-7f, -0x1.de55aep-10f);
  return fma(x * z, q, x);
}
template <class V>
inline V atan(V x) {
  V a = abs(x);
  auto big = a > V(1.f);
  V p = atan_poly(select(big, V(1.f) / a, a));
  return copysign(select(big, V(0x1.921fb6p+0f) - p, p), x);
}
template <class V>
inline V atan2(V y, V x) {
  V ay = abs(y), ax = abs(x);
  auto steep = ay > ax;
  V num = select(steep, ax, ay), den = select(steep, ay, ax);
  V q = num / den;
  q = select(den == V(0.f), V(0.f), q);      // both zero
  q = select(num == V(kInf<V>), V(1.f), q);  // both infinite
  V p = atan_poly(q);
  p = select(steep, V(0x1.921fb6p+0f) - p, p);
  auto left = bits(x) < Int<V>(0);  // -0 counts as left
  p = select(left, V(0x1.921fb6p+1f) - p, p);
  return select(mask_or(x != x, y != y), x + y, copysign(p, y));
}

/// C's fmod: exact, sign of x.
template <class V>
inline V fmod(V x, V y) {
  V a = abs(x), b = abs(y);
  V q = a / b;
  // Below 2^23 the truncated quotient is right or one too big; the remainder is then exact, and one correction exact
  // too.
  V r = fma(-trunc(q), b, a);
  r = select(r < V(0.f), r + b, r);
  auto easy = mask_and(q < V(0x1p23f), b < V(kInf<V>));
  if (!all_of(easy)) r = fmod_lanes(mask_not(easy), a, b, r);
  return copysign(r, x);
}

template <class V>
inline V pow(V x, V y) {
  auto is2 = y == V(2.f);
  V x2 = x * x;
  if (all_of(is2)) return x2;
  auto is3 = y == V(3.f);
  V x3 = x2 * x;
  if (all_of(is3)) return x3;

  // log|x| = hi + lo with some 30 correct bits: 2 atanh(s), s = f/(2+f) in two parts.
  V ax = abs(x), k(0.f);
  V f = split_exponent(ax, k) - V(1.f);
  V d = V(2.f) + f, d_lo = f - (d - V(2.f)), inv = V(1.f) / d;
  V s = f * inv;
  V s_lo = fma(-s, d_lo, fma(-s, d, f)) * inv;
  V z = s * s;
  V c = (s * z) * poly(z, 0x1.555554p-1f, 0x1.999bd4p-2f, 0x1.23f1bcp-2f, 0x1.ec153ep-3f);
  V base = k * V(0x1.62e4p-1f);  // 15 bits of ln2: exact
  V s2 = s + s;
  V hi = base + s2;
  V lo = (s2 - (hi - base)) + fma(k, V(0x1.7f7d1cp-20f), fma(V(2.f), s_lo, c));
  V h = hi + lo, l = lo - (h - hi);

  V p = y * h;
  V p_lo = fma(y, l, fma(y, h, -p));
  p_lo = select(abs(p) < V(200.f), p_lo, V(0.f));
  V r = exp_sum(p, p_lo);

  const V inf(kInf<V>), zero(0.f), one(1.f);
  auto up = y > zero;
  r = select(ax == zero, select(up, zero, inf), r);
  r = select(ax == inf, select(up, inf, zero), r);
  V to_inf = select(ax > one, select(up, inf, zero), select(up, zero, inf));
  r = select(abs(y) == inf, select(ax == one, one, to_inf), r);
  V half = V(0.5f) * y;
  auto whole = floor(y) == y;
  auto odd = mask_and(whole, floor(half) != half);
  auto negative = bits(x) < Int<V>(0);
  r = select(mask_and(negative, odd), -r, r);
  auto bad = mask_and(mask_and(x < zero, mask_not(whole)), ax < inf);
  r = select(bad, nan_v<V>(), r);
  r = select(mask_or(x != x, y != y), x + y, r);
  r = select(mask_or(x == one, y == zero), one, r);
  r = select(y == one, x, r);
  return select(is2, x2, select(is3, x3, r));
}

}  // namespace mge::body::MGE_BODY_NAMESPACE
#endif
