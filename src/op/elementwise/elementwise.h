// Elementwise ops: one struct per op, and its name in a list at the end. To add one: a struct here, a vjp row in
// elementwise.grad.cpp, a row in tests/python/op_cases.py. Reference, SIMD and fused execution are derived from eval.
// Read once per instruction set, like scalar_math.h.
// A table: one op reads best on one line.
// clang-format off
#if !defined(MGE_OP_ELEMENTWISE_H_) || defined(MGE_BODY_TARGET)
#include "op/opdef.h"
#include "op/elementwise/scalar_body.h"
#ifndef MGE_BODY_TARGET
#define MGE_OP_ELEMENTWISE_H_
#include "op/elementwise/scalar_math.h"
#endif

namespace mge::body::MGE_BODY_NAMESPACE {

template <class... Ops>
struct OpList {};

template <Domain kDomain, Promote kPromote, int kArity = 1, bool kBoolOut = false, uint32_t kTraits = 0>
struct ElementwiseOp {
  static constexpr Domain domain = kDomain;
  static constexpr Promote promote = kPromote;
  static constexpr int arity = kArity;
  static constexpr bool bool_out = kBoolOut;
  static constexpr uint32_t traits = kTraits;
  static constexpr Amp amp = Amp::None;
};
using FloatUnary = ElementwiseOp<Domain::Float, Promote::Float>;
// Under autocast in high precision: what loses accuracy or overflows in half precision.
struct SensitiveUnary : FloatUnary { static constexpr Amp amp = Amp::High; };
using NumberUnary = ElementwiseOp<Domain::Number, Promote::None>;
using TestUnary = ElementwiseOp<Domain::Any, Promote::None, 1, true, kNoGrad>;
template <uint32_t kTraits = 0>
using ArithBinary = ElementwiseOp<Domain::Number, Promote::Arith, 2, false, kTraits>;
template <uint32_t kTraits = 0>
using FloatBinary = ElementwiseOp<Domain::Float, Promote::Float, 2, false, kTraits>;
struct SensitiveBinary : FloatBinary<> { static constexpr Amp amp = Amp::High; };
template <uint32_t kTraits = 0>
using CompareBinary = ElementwiseOp<Domain::Any, Promote::Arith, 2, true, kTraits | kNoGrad>;
using BoolBinary = ElementwiseOp<Domain::Bool, Promote::Bool, 2, false, kNoGrad | kCommutative>;
using IntBinary = ElementwiseOp<Domain::Integer, Promote::Arith, 2, false, kNoGrad>;
// The local derivative times the incoming gradient, in one pass over memory.
using GradBinary = ElementwiseOp<Domain::Number, Promote::Same, 2>;

#define MGE_BODY1 template <class V> static V eval(V x)
#define MGE_BODY2(a, b) template <class V> static V eval(V a, V b)
#define MGE_OP(text_name, text) static constexpr const char *name = text_name, *doc = text

// ---- unary, floating point ----
struct Exp : SensitiveUnary { MGE_OP("exp", "e to the power x."); MGE_BODY1 { return exp(x); } };
struct Expm1 : SensitiveUnary { MGE_OP("expm1", "exp(x) - 1, accurate near 0."); MGE_BODY1 { return expm1(x); } };
struct Log : SensitiveUnary { MGE_OP("log", "Natural logarithm; NaN below 0, -inf at 0."); MGE_BODY1 { return log(x); } };
struct Log1p : SensitiveUnary { MGE_OP("log1p", "log(1 + x), accurate near 0."); MGE_BODY1 { return log1p(x); } };
struct Sqrt : SensitiveUnary { MGE_OP("sqrt", "Square root; NaN below 0."); MGE_BODY1 { return sqrt(x); } };
struct Rsqrt : SensitiveUnary { MGE_OP("rsqrt", "1 / sqrt(x)."); MGE_BODY1 { return V(1.f) / sqrt(x); } };
struct Sin : SensitiveUnary { MGE_OP("sin", "Sine of radians."); MGE_BODY1 { return sin(x); } };
struct Cos : SensitiveUnary { MGE_OP("cos", "Cosine of radians."); MGE_BODY1 { return cos(x); } };
struct Tan : SensitiveUnary { MGE_OP("tan", "Tangent of radians."); MGE_BODY1 { return tan(x); } };
struct Asin : SensitiveUnary { MGE_OP("asin", "Inverse sine; NaN outside [-1,1]."); MGE_BODY1 { return asin(x); } };
struct Acos : SensitiveUnary { MGE_OP("acos", "Inverse cosine; NaN outside [-1,1]."); MGE_BODY1 { return acos(x); } };
struct Atan : SensitiveUnary { MGE_OP("atan", "Inverse tangent."); MGE_BODY1 { return atan(x); } };
struct Sinh : SensitiveUnary { MGE_OP("sinh", "Hyperbolic sine."); MGE_BODY1 { return sinh(x); } };
struct Cosh : SensitiveUnary { MGE_OP("cosh", "Hyperbolic cosine."); MGE_BODY1 { return cosh(x); } };
struct Tanh : FloatUnary { MGE_OP("tanh", "Hyperbolic tangent."); MGE_BODY1 { return tanh(x); } };
struct Asinh : SensitiveUnary { MGE_OP("asinh", "Inverse hyperbolic sine."); MGE_BODY1 { return asinh(x); } };
struct Acosh : SensitiveUnary { MGE_OP("acosh", "Inverse hyperbolic cosine; NaN below 1."); MGE_BODY1 { return acosh(x); } };
struct Atanh : SensitiveUnary { MGE_OP("atanh", "Inverse hyperbolic tangent; NaN outside [-1,1]."); MGE_BODY1 { return atanh(x); } };
struct Erf : FloatUnary { MGE_OP("erf", "Gauss error function."); MGE_BODY1 { return erf(x); } };
struct Erfc : FloatUnary { MGE_OP("erfc", "1 - erf(x), accurate for large x."); MGE_BODY1 { return erfc(x); } };
struct ErfInv : FloatUnary { MGE_OP("erfinv", "The x whose erf is given; infinite at -1 and 1, NaN outside."); MGE_BODY1 { return erfinv(x); } };
struct ErfcInv : FloatUnary { MGE_OP("erfcinv", "The x whose erfc is given; infinite at 0 and 2, NaN outside."); MGE_BODY1 { return erfcinv(x); } };
struct Sigmoid : FloatUnary { MGE_OP("sigmoid", "1 / (1 + exp(-x))."); MGE_BODY1 { return sigmoid(x); } };
struct Gelu : FloatUnary { MGE_OP("gelu", "x times the normal distribution function of x."); MGE_BODY1 { return gelu(x); } };
struct Silu : FloatUnary { MGE_OP("silu", "x * sigmoid(x)."); MGE_BODY1 { return x * sigmoid(x); } };
struct Softplus : SensitiveUnary {
  MGE_OP("softplus", "log(1 + exp(x)), computed so that large x does not overflow.");
  MGE_BODY1 { return maximum(x, V(0.f)) + log1p(exp(-abs(x))); }
};
struct LogSigmoid : SensitiveUnary {
  MGE_OP("logsigmoid", "log(sigmoid(x)), computed so that it does not underflow.");
  MGE_BODY1 { return minimum(x, V(0.f)) - log1p(exp(-abs(x))); }
};
struct HSwish : FloatUnary {
  MGE_OP("hswish", "x * relu6(x + 3) / 6.");
  MGE_BODY1 { return x * minimum(maximum(x + V(3.f), V(0.f)), V(6.f)) / V(6.f); }
};
struct HSigmoid : SensitiveUnary {
  MGE_OP("hsigmoid", "relu6(x + 3) / 6.");
  MGE_BODY1 { return minimum(maximum(x + V(3.f), V(0.f)), V(6.f)) / V(6.f); }
};

// ---- unary, any number ----
struct Abs : NumberUnary { MGE_OP("abs", "Absolute value."); MGE_BODY1 { return abs(x); } };
struct Neg : NumberUnary { MGE_OP("neg", "-x."); MGE_BODY1 { return -x; } };
struct Square : NumberUnary { MGE_OP("square", "x * x."); MGE_BODY1 { return x * x; } };
struct Relu : NumberUnary { MGE_OP("relu", "max(x, 0); NaN stays NaN."); MGE_BODY1 { return select(x <= V(0.f), V(0.f), x); } };
struct Relu6 : NumberUnary {
  MGE_OP("relu6", "min(max(x, 0), 6); NaN stays NaN.");
  MGE_BODY1 { return select(x <= V(0.f), V(0.f), select(x > V(6.f), V(6.f), x)); }
};
struct Sign : NumberUnary {
  MGE_OP("sign", "-1, 0 or 1; NaN stays NaN.");
  MGE_BODY1 { return select(x > V(0.f), V(1.f), select(x < V(0.f), V(-1.f), select(x == x, V(0.f), x))); }
};
struct Floor : NumberUnary {
  MGE_OP("floor", "Largest whole number not above x; integers are returned unchanged.");
  MGE_BODY1 { return floor(x); }
  template <WholeNumber V> static V eval(V x) { return x; }
};
struct Ceil : NumberUnary {
  MGE_OP("ceil", "Smallest whole number not below x; integers are returned unchanged.");
  MGE_BODY1 { return ceil(x); }
  template <WholeNumber V> static V eval(V x) { return x; }
};
struct Round : NumberUnary {
  MGE_OP("round", "Nearest whole number, halves away from zero; integers are returned unchanged.");
  MGE_BODY1 {
    V t = trunc(x);
    return select(abs(x - t) >= V(0.5f), t + copysign(V(1.f), x), t);
  }
  template <WholeNumber V> static V eval(V x) { return x; }
};
struct IsNan : TestUnary { MGE_OP("isnan", "x is NaN; false for integers."); template <class V> static auto eval(V x) { return x != x; } };
struct IsInf : TestUnary {
  MGE_OP("isinf", "x is +inf or -inf; false for integers.");
  template <class V> static auto eval(V x) { return abs(x) == V(kInf<V>); }
  template <WholeNumber V> static auto eval(V x) { return x != x; }
};
struct LogicalNot : ElementwiseOp<Domain::Bool, Promote::Bool, 1, false, kNoGrad> {
  MGE_OP("logical_not", "not x, for bool tensors.");
  MGE_BODY1 { return mask_not(x); }
};

// ---- binary ----
struct Add : ArithBinary<kCommutative> { MGE_OP("add", "x + y."); MGE_BODY2(x, y) { return x + y; } };
struct Sub : ArithBinary<> { MGE_OP("sub", "x - y."); MGE_BODY2(x, y) { return x - y; } };
struct Mul : ArithBinary<kCommutative> { MGE_OP("mul", "x * y."); MGE_BODY2(x, y) { return x * y; } };
struct FloorDiv : ArithBinary<> {
  MGE_OP("floor_div", "floor(x / y); integers round towards -inf and give 0 for y = 0.");
  MGE_BODY2(x, y) { return floor(x / y); }
  template <WholeNumber V> static V eval(V x, V y) { return floor_div(x, y); }
};
struct Mod : ArithBinary<> {
  MGE_OP("mod", "Remainder: integers take the sign of y (Python), floats the sign of x (C fmod).");
  MGE_BODY2(x, y) { return fmod(x, y); }
  template <WholeNumber V> static V eval(V x, V y) { return mod(x, y); }
};
struct Maximum : ArithBinary<> { MGE_OP("maximum", "The larger; NaN if either is NaN."); MGE_BODY2(x, y) { return maximum(x, y); } };
struct Minimum : ArithBinary<> { MGE_OP("minimum", "The smaller; NaN if either is NaN."); MGE_BODY2(x, y) { return minimum(x, y); } };
struct PRelu : ArithBinary<> {
  MGE_OP("prelu", "x where it is 0 or above, else x * y.");
  MGE_BODY2(x, y) { return select(V(0.f) <= x, x, x * y); }
};
struct Div : SensitiveBinary { MGE_OP("div", "x / y; integers are divided as float32."); MGE_BODY2(x, y) { return x / y; } };
struct Pow : SensitiveBinary { MGE_OP("pow", "x to the power y, always floating point."); MGE_BODY2(x, y) { return pow(x, y); } };
struct Atan2 : SensitiveBinary { MGE_OP("atan2", "Angle of the point (second input, first input)."); MGE_BODY2(y, x) { return atan2(y, x); } };
struct LogAddExp : SensitiveBinary {
  MGE_OP("logaddexp", "log(exp(x) + exp(y)) without overflow.");
  MGE_BODY2(x, y) {
    V s = maximum(x, y) + log1p(exp(-abs(x - y)));
    return select(x == y, x + constant<V>(0.69314718055994530942), s);  // also both +inf or both -inf
  }
};
#define MGE_COMPARE(expr) template <class V> static auto eval(V x, V y) { return expr; }
struct Lt : CompareBinary<> { MGE_OP("lt", "x < y."); MGE_COMPARE(x < y) };
struct Le : CompareBinary<> { MGE_OP("le", "x <= y."); MGE_COMPARE(x <= y) };
struct Eq : CompareBinary<kCommutative> { MGE_OP("eq", "x == y."); MGE_COMPARE(x == y) };
struct Ne : CompareBinary<kCommutative> { MGE_OP("ne", "x != y."); MGE_COMPARE(x != y) };
#undef MGE_COMPARE
struct LogicalAnd : BoolBinary { MGE_OP("logical_and", "x and y, for bool tensors."); MGE_BODY2(x, y) { return mask_and(x, y); } };
struct LogicalOr : BoolBinary { MGE_OP("logical_or", "x or y, for bool tensors."); MGE_BODY2(x, y) { return mask_or(x, y); } };
struct LogicalXor : BoolBinary { MGE_OP("logical_xor", "x differs from y, for bool tensors."); MGE_BODY2(x, y) { return mask_xor(x, y); } };
struct LeftShift : IntBinary { MGE_OP("left_shift", "x << y."); MGE_BODY2(x, y) { return shift_left(x, y); } };
struct RightShift : IntBinary { MGE_OP("right_shift", "x >> y, keeping the sign."); MGE_BODY2(x, y) { return shift_right(x, y); } };

// ---- gradients in one pass: y is the forward output, x the forward input, g the incoming gradient ----
struct ReluGrad : GradBinary { MGE_OP("relu_grad", "g where y > 0, else 0."); MGE_BODY2(y, g) { return select(y > V(0.f), g, V(0.f)); } };
struct AbsGrad : GradBinary { MGE_OP("abs_grad", "g where x > 0, else -g."); MGE_BODY2(x, g) { return select(x > V(0.f), g, -g); } };
struct Relu6Grad : GradBinary {
  MGE_OP("relu6_grad", "g where 0 < y < 6, else 0.");
  MGE_BODY2(y, g) { return select(mask_and(y > V(0.f), y < V(6.f)), g, V(0.f)); }
};
struct FloatGrad : ElementwiseOp<Domain::Float, Promote::Same, 2> {};
struct SigmoidGrad : FloatGrad { MGE_OP("sigmoid_grad", "g * y * (1 - y)."); MGE_BODY2(y, g) { return g * (y * (V(1.f) - y)); } };
struct TanhGrad : FloatGrad { MGE_OP("tanh_grad", "g * (1 - y^2)."); MGE_BODY2(y, g) { return g * (V(1.f) - y * y); } };
struct HSigmoidGrad : FloatGrad {
  MGE_OP("hsigmoid_grad", "g / 6 where 0 < y < 1, else 0.");
  MGE_BODY2(y, g) { return select(mask_and(y > V(0.f), y < V(1.f)), g / V(6.f), V(0.f)); }
};
struct HSwishGrad : FloatGrad {
  MGE_OP("hswish_grad", "0 for x < -3, g for x > 3, else g * (2x + 3) / 6.");
  MGE_BODY2(x, g) { return select(x < V(-3.f), V(0.f), select(x > V(3.f), g, g * ((x + x + V(3.f)) / V(6.f)))); }
};
struct SiluGrad : FloatGrad {
  MGE_OP("silu_grad", "g * s * (1 + x * (1 - s)) with s = sigmoid(x).");
  MGE_BODY2(x, g) {
    V s = sigmoid(x);
    return g * (s * (V(1.f) + x * (V(1.f) - s)));
  }
};
struct GeluGrad : FloatGrad {
  MGE_OP("gelu_grad", "g * (cdf(x) + x * density(x)) of the normal distribution.");
  MGE_BODY2(x, g) { return g * gelu_slope(x); }
};

// ---- select ----
struct Where : ElementwiseOp<Domain::Any, Promote::Arith, 3> {
  MGE_OP("where", "x where the condition holds, else y.");
  template <class M, class V> static V eval(M c, V x, V y) { return select(c, x, y); }
};

#undef MGE_BODY1
#undef MGE_BODY2
#undef MGE_OP

// Lists by how they are compiled: each is one file in kernel/simd.
using CheapUnaryOps = OpList<Sqrt, Rsqrt, HSwish, HSigmoid, Abs, Neg, Square, Relu, Relu6, Sign, Floor, Ceil, Round>;
using ExpUnaryOps = OpList<Exp, Expm1, Log, Log1p, Sigmoid, Tanh, Silu, Softplus, LogSigmoid, Erf, Erfc, ErfInv, ErfcInv, Gelu>;
using TrigUnaryOps = OpList<Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh>;
using TestOps = OpList<IsNan, IsInf>;
using BoolOps = OpList<LogicalNot, LogicalAnd, LogicalOr, LogicalXor>;
using ArithOps = OpList<Add, Sub, Mul, FloorDiv, Mod, Maximum, Minimum, PRelu, Div>;
using MathBinaryOps = OpList<Pow, Atan2, LogAddExp>;
using CompareOps = OpList<Lt, Le, Eq, Ne>;
using ShiftOps = OpList<LeftShift, RightShift>;
using GradOps = OpList<ReluGrad, AbsGrad, Relu6Grad, SigmoidGrad, TanhGrad, HSigmoidGrad, HSwishGrad, SiluGrad, GeluGrad>;

}  // namespace mge::body::MGE_BODY_NAMESPACE
#endif
