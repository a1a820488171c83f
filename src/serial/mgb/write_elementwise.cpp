// Elementwise ops: most are one mode of Elemwise.
#include <cstring>
#include <map>
#include <optional>

#include "compat/op_class.h"
#include "op/elementwise/fake_quant.h"
#include "op/elementwise/typecvt.h"
#include "op/quant/quantize.h"
#include "serial/mgb/write_impl.h"

namespace mge::serial::mgb {
namespace {

struct Mode {
  const char *op, *mode;
};
constexpr Mode kModes[] = {
    {"relu", "RELU"},
    {"abs", "ABS"},
    {"acos", "ACOS"},
    {"asin", "ASIN"},
    {"ceil", "CEIL"},
    {"cos", "COS"},
    {"exp", "EXP"},
    {"expm1", "EXPM1"},
    {"floor", "FLOOR"},
    {"log", "LOG"},
    {"log1p", "LOG1P"},
    {"neg", "NEGATE"},
    {"sigmoid", "SIGMOID"},
    {"sin", "SIN"},
    {"tanh", "TANH"},
    {"add", "ADD"},
    {"floor_div", "FLOOR_DIV"},
    {"maximum", "MAX"},
    {"minimum", "MIN"},
    {"mod", "MOD"},
    {"mul", "MUL"},
    {"pow", "POW"},
    {"sub", "SUB"},
    {"div", "TRUE_DIV"},
    {"logaddexp", "LOG_SUM_EXP"},
    {"left_shift", "SHL"},
    {"right_shift", "SHR"},
    {"round", "ROUND"},
    {"atan2", "ATAN2"},
    {"erf", "ERF"},
    {"erfinv", "ERFINV"},
    {"erfc", "ERFC"},
    {"erfcinv", "ERFCINV"},
    {"hswish", "H_SWISH"},
    {"logical_not", "NOT"},
    {"logical_and", "AND"},
    {"logical_or", "OR"},
    {"logical_xor", "XOR"},
    {"silu", "SILU"},
    {"gelu", "GELU"},
    {"sinh", "SINH"},
    {"cosh", "COSH"},
    {"asinh", "ASINH"},
    {"acosh", "ACOSH"},
    {"atanh", "ATANH"},
    {"tan", "TAN"},
    {"softplus", "SOFTPLUS"},
    {"relu6", "RELU6"},
    {"hsigmoid", "HSIGMOID"},
    {"logsigmoid", "LOGSIGMOID"},
    {"sqrt", "SQRT"},
    {"square", "SQUARE"},
    {"sign", "SIGN"},
    {"hswish_grad", "H_SWISH_GRAD"},
    {"silu_grad", "SILU_GRAD"},
    {"gelu_grad", "GELU_GRAD"},
    {"relu6_grad", "RELU6_GRAD"},
    {"abs_grad", "ABS_GRAD"},
    {"sigmoid_grad", "SIGMOID_GRAD"},
    {"tanh_grad", "TANH_GRAD"},
};

bool is_number(const Oprs& w, size_t i, double value) {
  const ir::Constant* c = w.graph().constant_of(w.node().inputs[i]);
  const Meta& m = w.meta(i);
  if (!c || !c->storage || m.shape.numel() != 1 || is_quant(m.dtype)) return false;
  const std::string want = scalar_bytes(value, m.dtype);
  return std::memcmp(c->data(), want.data(), want.size()) == 0;
}
/// The operand that x * 1, x + 0 and x ** 1 are: MegEngine's GraphInference makes it of them, and fails of that.
std::optional<size_t> itself(const Oprs& w) {
  const std::string_view op = w.node().op->name;
  if (op != "mul" && op != "add" && op != "pow") return std::nullopt;
  for (size_t i : {size_t{1}, size_t{0}})
    if (is_number(w, i, op == "add" ? 0 : 1) && w.meta(1 - i).same_type(w.out_meta()) && (i == 1 || op != "pow"))
      return 1 - i;
  return std::nullopt;
}

void elemwise(Oprs& w) {
  if (const std::optional<size_t> i = itself(w)) return w.result(w.in(*i));
  Vars in;
  for (size_t i = 0; i < w.n_in(); ++i) in.push_back(w.in(i));
  for (auto& m : kModes)
    if (w.node().op->name == m.op) return w.result(w.elemwise(m.mode, in));
}
void rsqrt(Oprs& w) { w.result(w.elemwise("TRUE_DIV", {w.number(1, w.meta(0).dtype), w.elemwise("SQRT", {w.in(0)})})); }
void prelu(Oprs& w) {  // the mode is newer than 8.14, and of floats
  const DType t = w.out_meta().dtype;
  if (is_float(t) && !w.older()) return w.result(w.elemwise("PRELU", {w.in(0), w.in(1)}));
  const VarId zero = w.number(0, t), below = w.elemwise("MIN", {w.in(0), zero});
  w.result(w.elemwise("ADD", {w.elemwise("MAX", {w.in(0), zero}), w.elemwise("MUL", {below, w.in(1)})}));
}
void relu_grad(Oprs& w) { w.result(w.elemwise("SWITCH_GT0", {w.in(0), w.in(1)})); }
void hsigmoid_grad(Oprs& w) {  // theirs looks at the argument, ours at the result
  const DType t = w.meta(0).dtype;
  const VarId sixth = w.elemwise("TRUE_DIV", {w.in(1), w.number(6, t)});
  const VarId below = w.elemwise("SWITCH_GT0", {w.elemwise("SUB", {w.number(1, t), w.in(0)}), sixth});
  w.result(w.elemwise("SWITCH_GT0", {w.in(0), below}));
}
void atan(Oprs& w) { w.result(w.elemwise("ATAN2", {w.in(0), w.number(1, w.meta(0).dtype)})); }

template <const auto& kMode>
void compared(Oprs& w) {
  Vars in;
  for (size_t i = 0; i < w.n_in(); ++i) in.push_back(w.in(i));
  const bool bools = w.meta(0).dtype == DType::Bool;
  const std::string_view mode = kMode;
  if (bools && (mode == "EQ" || mode == "NEQ")) {
    const VarId differs = w.elemwise("XOR", in);
    return w.result(mode == "NEQ" ? differs : w.elemwise("NOT", {differs}));
  }
  if (bools)
    for (auto& v : in) v = w.convert(v, DType::I32);
  w.result(w.compare(mode, in));
}
constexpr char kLt[] = "LT", kLe[] = "LEQ", kEq[] = "EQ", kNe[] = "NEQ", kNan[] = "ISNAN", kInf[] = "ISINF";

// The second format has no Where: what the mask takes of x, and what is left of y. SWITCH_GT0 gives 0 elsewhere,
// whatever stands there.
void where(Oprs& w) {
  const DType t = w.out_meta().dtype;
  const VarId mask = w.in(0), x = w.in(1), y = w.in(2);
  if (t == DType::Bool)
    return w.result(
        w.elemwise("OR", {w.elemwise("AND", {mask, x}), w.elemwise("AND", {w.elemwise("NOT", {mask}), y})}));
  const VarId one = w.convert(mask, t), other = w.convert(w.elemwise("NOT", {mask}), t);
  w.result(w.elemwise("ADD", {w.elemwise("SWITCH_GT0", {one, x}), w.elemwise("SWITCH_GT0", {other, y})}));
}
std::string refuse_where(const Graph& g, const ir::Node& n) {
  const DType t = g.meta(n.outputs[0]).dtype;
  return is_float(t) || is_int(t) || t == DType::Bool ? std::string() : format("of {}", dtype_name(t));
}

void typecvt(Oprs& w) {
  const Meta &from = w.meta(0), &to = w.out_meta();
  if (Oprs::narrow(from.dtype) == Oprs::narrow(to.dtype) && from.quant == to.quant) return w.result(w.in(0));
  w.result(w.convert(w.in(0), to.dtype, to.quant));
}
void same(Oprs& w) { w.result(w.in(0)); }

template <const auto& kType>
void fake_quant(Oprs& w) {
  const auto& at = w.attrs<FakeQuantAttrs>();
  Vars in;
  for (size_t i = 0; i < w.n_in(); ++i) in.push_back(w.in(i));
  if (w.meta(0).shape != w.out_meta().shape)  // theirs has the shape of the first
    in[0] = w.broadcast(in[0], w.opr1("GetVarShapeV1", "OptionalAxisV1", {}, in));
  w.result(w.opr1(kType, kType, {{"qmin", at.qmin}, {"qmax", at.qmax}}, in));
}
constexpr char kFakeQuant[] = "FakeQuant", kTqt[] = "TQT", kLsq[] = "LSQ";

}  // namespace

std::span<const RuleRow> elementwise_rules() {
  static const std::vector<RuleRow> rows = [] {
    std::vector<RuleRow> out = {
        {"rsqrt", rsqrt},
        {"atan", atan},
        {"relu_grad", relu_grad},
        {"hsigmoid_grad", hsigmoid_grad},
        {"prelu", prelu},
        {"lt", compared<kLt>},
        {"le", compared<kLe>},
        {"eq", compared<kEq>},
        {"ne", compared<kNe>},
        {"isnan", compared<kNan>},
        {"isinf", compared<kInf>},
        {"where", where, refuse_where},
        {"typecvt", typecvt},
        {"quantize", typecvt},
        {"dequantize", typecvt},
        {"copy", same},
        {"check_range", same},
        {"copy_to", same},
        {"fake_quant", fake_quant<kFakeQuant>},
        {"tqt", fake_quant<kTqt>},
        {"lsq", fake_quant<kLsq>},
    };
    for (auto& m : kModes) out.push_back({m.op, elemwise});
    return out;
  }();
  return rows;
}

}  // namespace mge::serial::mgb
