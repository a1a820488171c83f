// Elemwise and ElemwiseMultiType: one row per mode.
#include <array>

#include "compat/emit.h"
#include "op/quant/quantize.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(ElemwiseMode, "Elemwise", "Mode", RELU, ABS, ACOS, ASIN, CEIL, COS, EXP, EXPM1, FLOOR, LOG, LOG1P,
                NEGATE, SIGMOID, SIN, TANH, ABS_GRAD, ADD, FLOOR_DIV, MAX, MIN, MOD, MUL, POW, SIGMOID_GRAD, SUB,
                SWITCH_GT0, TANH_GRAD, TRUE_DIV, LOG_SUM_EXP, LT, LEQ, EQ, SHL, SHR, COND_LEQ_MOV, FUSE_MUL_ADD3,
                FUSE_MUL_ADD4, FUSE_ADD_RELU, FUSE_ADD_SIGMOID, FUSE_ADD_TANH, FAST_TANH, FAST_TANH_GRAD, ROUND, RMULH,
                ATAN2, ERF, ERFINV, ERFC, ERFCINV, H_SWISH, H_SWISH_GRAD, FUSE_ADD_H_SWISH, NOT, AND, OR, XOR, SILU,
                SILU_GRAD, GELU, GELU_GRAD, COND_LT_MOV, NEQ, ISNAN, ISINF, SINH, COSH, ASINH, ACOSH, ATANH, TAN,
                ASINH_GRAD, ACOSH_GRAD, ATANH_GRAD, PRELU, CLIP, PRELU_GRAD, SOFTPLUS, SOFTPLUS_GRAD, RELU6, RELU6_GRAD,
                HSIGMOID, HSIGMOID_GRAD, LOGSIGMOID, SQRT, SQUARE, SIGN)

MGE_COMPAT_ENUM(MultiTypeMode, "ElemwiseMultiType", "Mode", FUSE_MUL_ADD3_INT16x32x32x32, FUSE_MUL_ADD3_IXxF32xF32xI8,
                ROUND_SHR_SATURATE_IXxI8xI8, FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8,
                FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8, ROUND_SHR_SATURATE_IXxI8xI16, QADD, QFUSE_ADD_RELU,
                QMUL, QMIN, QMAX, QSUB, QTRUE_DIV, QFUSE_ADD_SIGMOID, QFUSE_ADD_TANH, QRELU, QABS, QSIGMOID, QEXP,
                QTANH, QFUSE_MUL_ADD3, QFAST_TANH, QNEGATE, QACOS, QASIN, QCEIL, QCOS, QEXPM1, QFLOOR, QLOG, QLOG1P,
                QSIN, QROUND, QERF, QERFINV, QERFC, QERFCINV, QABS_GRAD, QFLOOR_DIV, QMOD, QSIGMOID_GRAD, QSWITCH_GT0,
                QTANH_GRAD, QLT, QLEQ, QEQ, QPOW, QLOG_SUM_EXP, QFAST_TANH_GRAD, QATAN2, QCOND_LEQ_MOV, QH_SWISH,
                QFUSE_ADD_H_SWISH, QH_SWISH_GRAD, FUSE_MUL_ADD3_INT16xF32xF32xF32, MUL_INT16xF32xF32,
                FUSE_MUL_ADD3_UINT8xF32xF32xF32, QCOND_LT_MOV, EQ, NEQ, LT, LEQ, ISNAN, ISINF)

struct Elemwise {
  ElemwiseMode mode = ElemwiseMode::RELU;
  static constexpr auto fields() { return field_list("mode", &Elemwise::mode); }
};
struct MultiType {
  MultiTypeMode mode = MultiTypeMode::FUSE_MUL_ADD3_INT16x32x32x32;
  TypeParam dtype;
  static constexpr auto fields() { return field_list("mode", &MultiType::mode, "dtype", &MultiType::dtype); }
};

struct PowC {
  double exp = 0;
  static constexpr auto fields() { return field_list("exp", &PowC::exp); }
};

using X = const Val*;
using Body = Val (*)(X);

/// 0 and 1 in the dtype of what was compared.
Val as_number(const Val& test, const Val& like) { return cast(test, like.dtype()); }

// The high half of the doubled product, rounded half up: the product needs twice the bits.
Val rmulh(X x) {
  const DType t = x[0].dtype();
  MGE_CHECK(t == DType::I8 || t == DType::I16 || t == DType::I32, Type,
            "Elemwise RMULH: needs int8, int16 or int32; got {}.", x[0].meta().str());
  const int bits = static_cast<int>(dtype_size(t)) * 8;
  const double top = static_cast<double>(int64_t{1} << (bits - 1));
  Val product = cast(x[0], DType::I64) * cast(x[1], DType::I64);
  Val rounded =
      binary("right_shift", product + static_cast<double>(int64_t{1} << (bits - 2)), scalar_like(product, bits - 1));
  return cast(clip(rounded, -top, top - 1), t);
}

Val fast_slope(const Val& given) {
  Val x = is_float(given.dtype()) ? given : cast(given, DType::F32);
  Val x2 = x * x, below = x2 + 3.0;
  return (x2 * -48.0 / below + 27.0 + x2) / below / 9.0;
}

struct Mode {
  int inputs;
  const char* op;  // the op that has the same meaning
  Body body;       // otherwise
};

// In the order of the enum.
constexpr auto kModes = std::to_array<Mode>({
    {1, "relu", nullptr},
    {1, "abs", nullptr},
    {1, "acos", nullptr},
    {1, "asin", nullptr},
    {1, "ceil", nullptr},
    {1, "cos", nullptr},
    {1, "exp", nullptr},
    {1, "expm1", nullptr},
    {1, "floor", nullptr},
    {1, "log", nullptr},
    {1, "log1p", nullptr},
    {1, "neg", nullptr},
    {1, "sigmoid", nullptr},
    {1, "sin", nullptr},
    {1, "tanh", nullptr},
    {2, nullptr, [](X x) { return select(positive(x[0]), x[1], -x[1]); }},  // ABS_GRAD
    {2, "add", nullptr},
    {2, "floor_div", nullptr},
    {2, "maximum", nullptr},
    {2, "minimum", nullptr},
    {2, "mod", nullptr},
    {2, "mul", nullptr},
    {2, "pow", nullptr},
    {2, nullptr, [](X x) { return x[0] * (1.0 - x[0]) * x[1]; }},  // SIGMOID_GRAD
    {2, "sub", nullptr},
    {2, nullptr, [](X x) { return where0(positive(x[0]), x[1]); }},  // SWITCH_GT0
    {2, nullptr, [](X x) { return (1.0 - x[0] * x[0]) * x[1]; }},    // TANH_GRAD
    {2, "div", nullptr},
    {2, "logaddexp", nullptr},
    {2, nullptr, [](X x) { return as_number(binary("lt", x[0], x[1]), x[0]); }},
    {2, nullptr, [](X x) { return as_number(binary("le", x[0], x[1]), x[0]); }},
    {2, nullptr, [](X x) { return as_number(binary("eq", x[0], x[1]), x[0]); }},
    {2, "left_shift", nullptr},
    {2, "right_shift", nullptr},
    {3, nullptr, [](X x) { return where0(binary("le", x[0], x[1]), x[2]); }},  // COND_LEQ_MOV
    {3, nullptr, [](X x) { return x[0] * x[1] + x[2]; }},                      // FUSE_MUL_ADD3
    {4, nullptr, [](X x) { return x[0] * x[1] + x[2] * x[3]; }},               // FUSE_MUL_ADD4
    {2, nullptr, [](X x) { return unary("relu", x[0] + x[1]); }},
    {2, nullptr, [](X x) { return unary("sigmoid", x[0] + x[1]); }},
    {2, nullptr, [](X x) { return unary("tanh", x[0] + x[1]); }},
    {1, nullptr,  // FAST_TANH
     [](X x) {
       Val v = is_float(x[0].dtype()) ? x[0] : cast(x[0], DType::F32), v2 = v * v;
       return v * (v2 + 27.0) / (v2 * 9.0 + 27.0);
     }},
    {2, nullptr, [](X x) { return fast_slope(x[0]) * x[1]; }},
    {1, "round", nullptr},
    {2, nullptr, rmulh},
    {2, "atan2", nullptr},
    {1, "erf", nullptr},
    {1, "erfinv", nullptr},
    {1, "erfc", nullptr},
    {1, "erfcinv", nullptr},
    {1, "hswish", nullptr},
    {2, "hswish_grad", nullptr},
    {2, nullptr, [](X x) { return unary("hswish", x[0] + x[1]); }},
    {1, "logical_not", nullptr},
    {2, "logical_and", nullptr},
    {2, "logical_or", nullptr},
    {2, "logical_xor", nullptr},
    {1, "silu", nullptr},
    {2, "silu_grad", nullptr},
    {1, "gelu", nullptr},
    {2, "gelu_grad", nullptr},
    {3, nullptr, [](X x) { return where0(less(x[0], x[1]), x[2]); }},  // COND_LT_MOV
    {2, nullptr, [](X x) { return as_number(binary("ne", x[0], x[1]), x[0]); }},
    {1, nullptr, [](X x) { return as_number(unary("isnan", x[0]), x[0]); }},
    {1, nullptr, [](X x) { return as_number(unary("isinf", x[0]), x[0]); }},
    {1, "sinh", nullptr},
    {1, "cosh", nullptr},
    {1, "asinh", nullptr},
    {1, "acosh", nullptr},
    {1, "atanh", nullptr},
    {1, "tan", nullptr},
    {2, nullptr, [](X x) { return x[1] / unary("sqrt", x[0] * x[0] + 1.0); }},  // ASINH_GRAD
    {2, nullptr, [](X x) { return x[1] / unary("sqrt", x[0] * x[0] - 1.0); }},  // ACOSH_GRAD
    {2, nullptr, [](X x) { return x[1] / (1.0 - x[0] * x[0]); }},               // ATANH_GRAD
    {2, "prelu", nullptr},
    {3, nullptr, [](X x) { return binary("minimum", binary("maximum", x[0], x[1]), x[2]); }},  // CLIP
    {3, nullptr,
     [](X x) { return select(binary("le", scalar_like(x[0], 0), x[0]), x[1], x[1] * x[2]); }},  // PRELU_GRAD
    {1, "softplus", nullptr},
    {2, nullptr, [](X x) { return unary("sigmoid", x[0]) * x[1]; }},  // SOFTPLUS_GRAD
    {1, "relu6", nullptr},
    {2, "relu6_grad", nullptr},
    {1, "hsigmoid", nullptr},
    {2, nullptr,  // HSIGMOID_GRAD
     [](X x) { return where0(less(unary("abs", x[0]), scalar_like(x[0], 3)), x[1] / number(x[1], 6)); }},
    {1, "logsigmoid", nullptr},
    {1, "sqrt", nullptr},
    {1, "square", nullptr},
    {1, "sign", nullptr},
});
static_assert(kModes.size() == static_cast<size_t>(ElemwiseMode::SIGN) + 1);

void elemwise(Emitter& em, const Elemwise& p, In in, Out& out) {
  const Mode& mode = kModes[static_cast<size_t>(p.mode)];
  MGE_CHECK(in.size() == static_cast<size_t>(mode.inputs), Value, "Elemwise {}: needs {} inputs; got {}.",
            name_of(p.mode), mode.inputs, in.size());
  out.push_back(mode.op ? emit_all(em, mode.op, in)[0] : mode.body(in.data()));
}

void pow_constant(Emitter&, const PowC& p, In in, Out& out) {
  out.push_back(binary("pow", in[0], number(in[0], p.exp)));
}

void need(const MultiType& p, In in, size_t n) {
  MGE_CHECK(in.size() == n, Value, "ElemwiseMultiType {}: needs {} inputs; got {}.", name_of(p.mode), n, in.size());
}

/// "QADD" is "ADD" of the real numbers, quantised as `dtype` says.
bool quantised_mode(Emitter& em, const MultiType& p, In in, Out& out) {
  const std::string_view name = name_of(p.mode);
  if (name[0] != 'Q') return false;
  Elemwise plain;
  while (name_of(plain.mode) != name.substr(1))
    plain.mode = static_cast<ElemwiseMode>(static_cast<int>(plain.mode) + 1);
  Out real;
  for (auto& v : in) real.push_back(dequantized(v));
  elemwise(em, plain, {real.data(), real.size()}, out);
  MGE_CHECK(p.dtype.dtype, Value, "ElemwiseMultiType {}: needs the dtype of the result, for example qint8(0.1).", name);
  out.back() = converted(out.back(), p.dtype);
  return true;
}

/// x / 2**k, rounded to nearest with halves away from zero, inside [lo, hi].
Val shifted(const Val& x, const Val& k, double lo, double hi) {
  const Val wide = cast(x, DType::I64), by = cast(k, DType::I64), zero = scalar_like(wide, 0);
  const Val half = binary("right_shift", binary("left_shift", scalar_like(by, 1), by), scalar_like(by, 1));
  const Val size = binary("right_shift", unary("abs", wide) + half, by);
  return clip(select(less(wide, zero), -size, size), lo, hi);
}

/// Nearest whole number, halves to even, of small float32: they have no bits left for a fraction beside 1.5 * 2**23.
Val whole(const Val& x) { return (x + 12582912.0) - 12582912.0; }

/// (x + bias) * multiplier, the high half, then shifted: x, bias, multiplier, shift, least, largest.
Val fixed_point(const MultiType& p, In in, DType t) {
  need(p, in, 6);
  for (size_t i = 0; i < 3; ++i)
    MGE_CHECK(in[i].dtype() == t, Type, "ElemwiseMultiType {}: input {} must be {}; got {}.", name_of(p.mode), i,
              dtype_name(t), in[i].meta().str());
  const Val operands[] = {in[0] + in[1], in[2]};
  const Val y = shifted(rmulh(operands), in[3], -128, 127);
  const Val lo = cast(in[4], DType::I64), hi = cast(in[5], DType::I64);
  return cast(binary("minimum", binary("maximum", y, lo), hi), DType::I8);
}

void multi_type(Emitter& em, const MultiType& p, In in, Out& out) {
  if (quantised_mode(em, p, in, out)) return;
  using M = MultiTypeMode;
  const char* test = nullptr;
  switch (p.mode) {
    case M::EQ:
      test = "eq";
      break;
    case M::NEQ:
      test = "ne";
      break;
    case M::LT:
      test = "lt";
      break;
    case M::LEQ:
      test = "le";
      break;
    case M::ISNAN:
      test = "isnan";
      break;
    case M::ISINF:
      test = "isinf";
      break;
    case M::FUSE_MUL_ADD3_INT16xF32xF32xF32:
    case M::FUSE_MUL_ADD3_UINT8xF32xF32xF32:
      need(p, in, 3);
      return out.push_back(cast(in[0], DType::F32) * in[1] + in[2]);
    case M::MUL_INT16xF32xF32:
      need(p, in, 2);
      return out.push_back(cast(in[0], DType::F32) * in[1]);
    case M::FUSE_MUL_ADD3_INT16x32x32x32:
      need(p, in, 3);
      return out.push_back(cast(in[0], DType::I32) * in[1] + in[2]);
    case M::FUSE_MUL_ADD3_IXxF32xF32xI8:
      need(p, in, 3);
      return out.push_back(cast(whole(clip(cast(in[0], DType::F32) * in[1] + in[2], -128, 127)), DType::I8));
    case M::ROUND_SHR_SATURATE_IXxI8xI8:
      need(p, in, 2);
      return out.push_back(cast(shifted(in[0], in[1], -128, 127), DType::I8));
    case M::ROUND_SHR_SATURATE_IXxI8xI16:
      need(p, in, 2);
      return out.push_back(cast(shifted(in[0], in[1], -32768, 32767), DType::I16));
    case M::FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8:
      return out.push_back(fixed_point(p, in, DType::I16));
    case M::FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8:
      return out.push_back(fixed_point(p, in, DType::I32));
    default:
      fail(ErrorKind::NotImplemented, "ElemwiseMultiType: {} has no rule.", name_of(p.mode));
  }
  need(p, in, p.mode == M::ISNAN || p.mode == M::ISINF ? 1 : 2);
  out.push_back(converted(emit_all(em, test, in)[0], p.dtype));
}

}  // namespace

void add_elemwise(Table& t) {
  t.add<Elemwise, elemwise>("Elemwise", {0, -1}, "Elemwise@1");  // the mode says how many
  t.add<MultiType, multi_type>("ElemwiseMultiType", {0, -1}, "ElemwiseMultiType@1");
  t.add_file_type<PowC, pow_constant>("PowC", {1, 1}, "PowC@1");
}

}  // namespace mge::compat
