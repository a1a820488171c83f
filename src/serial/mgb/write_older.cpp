// What readers of version 8.14 lack, written in what they have. The formulas are those that stay exact for small x.
#include <limits>
#include <map>

#include "serial/mgb/write_impl.h"

namespace mge::serial::mgb {
namespace {

/// Modes of Elemwise that those readers know, and numbers of the type at hand.
struct Known {
  Oprs& w;
  DType t;

  VarId operator()(double x) const { return w.number(x, t); }
  VarId of(const char* mode, Vars in) const { return w.elemwise(mode, std::move(in)); }
  VarId add(VarId a, VarId b) const { return of("ADD", {a, b}); }
  VarId sub(VarId a, VarId b) const { return of("SUB", {a, b}); }
  VarId mul(VarId a, VarId b) const { return of("MUL", {a, b}); }
  VarId div(VarId a, VarId b) const { return of("TRUE_DIV", {a, b}); }
  VarId clip(VarId x, double low, double high) const {
    return of("MIN", {of("MAX", {x, (*this)(low)}), (*this)(high)});
  }
  VarId sqrt(VarId x) const { return of("POW", {x, (*this)(0.5)}); }
  VarId softplus(VarId x) const {
    return add(of("MAX", {x, (*this)(0)}), of("LOG1P", {of("EXP", {of("NEGATE", {of("ABS", {x})})})}));
  }
  /// log(1 + x), grown from |x|, with the sign of x put back.
  VarId odd_log1p(VarId x, VarId grown) const { return mul(of("LOG1P", {grown}), sign(x)); }
  VarId sign(VarId x) const { return sub(of("LT", {(*this)(0), x}), of("LT", {x, (*this)(0)})); }
};

using Formula = VarId (*)(const Known& k, VarId x);
const std::map<std::string_view, Formula>& formulas() {
  static const std::map<std::string_view, Formula> all = {
      {"SQRT", [](auto& k, VarId x) { return k.sqrt(x); }},
      {"SQUARE", [](auto& k, VarId x) { return k.mul(x, x); }},
      {"TAN", [](auto& k, VarId x) { return k.div(k.of("SIN", {x}), k.of("COS", {x})); }},
      {"COSH",
       [](auto& k, VarId x) {
         const VarId e = k.of("EXP", {k.of("ABS", {x})});
         return k.add(k.mul(e, k(0.5)), k.div(k(0.5), e));
       }},
      {"SINH",
       [](auto& k, VarId x) {  // with u = exp(x) - 1: (u + u / (u + 1)) / 2
         const VarId u = k.of("EXPM1", {k.of("ABS", {x})});
         return k.mul(k.mul(k.add(u, k.div(u, k.add(u, k(1)))), k(0.5)), k.sign(x));
       }},
      {"ASINH",
       [](auto& k, VarId x) {  // log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|
         const VarId a = k.of("ABS", {x}), s = k.mul(a, a);
         return k.odd_log1p(x, k.add(a, k.div(s, k.add(k(1), k.sqrt(k.add(s, k(1)))))));
       }},
      {"ACOSH", [](auto& k, VarId x) { return k.of("LOG", {k.add(x, k.sqrt(k.sub(k.mul(x, x), k(1))))}); }},
      {"ATANH", [](auto& k, VarId x) { return k.mul(k.of("LOG1P", {k.div(k.mul(x, k(2)), k.sub(k(1), x))}), k(0.5)); }},
      {"SIGN", [](auto& k, VarId x) { return k.sign(x); }},
      {"RELU6", [](auto& k, VarId x) { return k.clip(x, 0, 6); }},
      {"HSIGMOID", [](auto& k, VarId x) { return k.div(k.clip(k.add(x, k(3)), 0, 6), k(6)); }},
      {"SOFTPLUS", [](auto& k, VarId x) { return k.softplus(x); }},
      {"LOGSIGMOID", [](auto& k, VarId x) { return k.of("NEGATE", {k.softplus(k.of("NEGATE", {x}))}); }},
  };
  return all;
}

}  // namespace

std::string newer_than_814(std::string_view op) {
  for (std::string_view newer : {"softmax", "layer_norm", "relu6_grad"})
    if (op == newer) return "newer than version 8.14";
  return {};
}

VarId older_elemwise(Oprs& w, std::string_view mode, const Vars& in) {
  const auto at = formulas().find(mode);
  return at == formulas().end() ? Oprs::kNoVar : at->second({w, w.meta(0).dtype}, in[0]);
}

VarId older_compare(Oprs& w, std::string_view mode, const Vars& in) {
  const Known k{w, w.meta(0).dtype};
  const bool differs = mode == "NEQ" || mode == "ISNAN";  // nan alone differs from itself
  const VarId v = mode == "ISINF"   ? k.of("EQ", {k.of("ABS", {in[0]}), k(std::numeric_limits<double>::infinity())})
                  : mode == "ISNAN" ? k.of("EQ", {in[0], in[0]})
                  : differs         ? k.of("EQ", in)
                                    : w.elemwise(mode, in);
  const VarId truth = w.convert(v, DType::Bool);
  return differs ? w.elemwise("NOT", {truth}) : truth;
}

}  // namespace mge::serial::mgb
