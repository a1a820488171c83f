#include "kernel/cuda/emit.h"

#include "op/elementwise/expr.h"

namespace mge::cuda {
namespace {

constexpr const char* kStorage[] = {"Flag",    "uint8_t", "int8_t", "uint16_t", "int16_t", "int32_t",
                                    "int64_t", "Half",    "BFloat", "float",    "double"};
constexpr const char* kTypes[] = {"bool", "int", "i64", "float", "double"};  // by ExprType

// $0 to $2 are the operands, %u the unsigned type of an integer, %t the type.
struct Form {
  ExprFn fn;
  const char *real, *integer, *truth;
};
constexpr Form kForms[] = {
    {ExprFn::Add, "$0 + $1", "%t(%u($0) + %u($1))", nullptr},
    {ExprFn::Sub, "$0 - $1", "%t(%u($0) - %u($1))", nullptr},
    {ExprFn::Mul, "$0 * $1", "%t(%u($0) * %u($1))", nullptr},
    {ExprFn::Div, "$0 / $1", "$0 / $1", nullptr},
    {ExprFn::Neg, "-$0", "%t(%u(0) - %u($0))", nullptr},
    {ExprFn::Abs, "fabs($0)", "$0 < 0 ? %t(%u(0) - %u($0)) : $0", nullptr},
    {ExprFn::Fma, "fma($0, $1, $2)", nullptr, nullptr},
    {ExprFn::Sqrt, "sqrt($0)", nullptr, nullptr},
    {ExprFn::Floor, "floor($0)", nullptr, nullptr},
    {ExprFn::Ceil, "ceil($0)", nullptr, nullptr},
    {ExprFn::Trunc, "trunc($0)", nullptr, nullptr},
    {ExprFn::CopySign, "copysign($0, $1)", nullptr, nullptr},
    {ExprFn::Fmod, "fmod($0, $1)", nullptr, nullptr},
    {ExprFn::Lt, nullptr, nullptr, "$0 < $1"},
    {ExprFn::Le, nullptr, nullptr, "$0 <= $1"},
    {ExprFn::Eq, nullptr, nullptr, "$0 == $1"},
    {ExprFn::Ne, nullptr, nullptr, "$0 != $1"},
    {ExprFn::And, nullptr, "$0 & $1", "$0 && $1"},
    {ExprFn::Or, nullptr, "$0 | $1", "$0 || $1"},
    {ExprFn::Xor, nullptr, "$0 ^ $1", "$0 != $1"},
    {ExprFn::Not, nullptr, nullptr, "!$0"},
    {ExprFn::Shl, nullptr, "%t(%u($0) << $1)", nullptr},
    {ExprFn::Sar, nullptr, "$0 >> $1", nullptr},
    {ExprFn::Select, "$0 ? $1 : $2", "$0 ? $1 : $2", "$0 ? $1 : $2"},
    {ExprFn::BitCast, "std::bit_cast<%t>($0)", "std::bit_cast<%t>($0)", nullptr},
    {ExprFn::Convert, "static_cast<%t>($0)", "static_cast<%t>($0)", nullptr},
};

bool is_real(ExprType t) { return t == ExprType::F32 || t == ExprType::F64; }

std::string constant_text(const ExprNode& n) {
  switch (n.type) {
    case ExprType::Bool:
      return n.bits ? "true" : "false";
    case ExprType::F32:
      return format("std::bit_cast<float>(0x{:08x}u)", n.bits);
    case ExprType::F64:
      return format("std::bit_cast<double>(0x{:016x}ull)", n.bits);
    case ExprType::I32:
      return format("int(0x{:x}u)", n.bits);
    default:
      return format("i64(0x{:x}ull)", n.bits);
  }
}

// `name` makes the text of an operand from its number.
template <class F>
std::string node_text(const ExprNode& n, F name) {
  if (n.fn == ExprFn::Constant) return constant_text(n);
  if (n.fn == ExprFn::Library)
    return std::string(kLibraryFunctions[n.bits]) + "(" + name(n.in[0]) + (n.in[1] < 0 ? "" : ", " + name(n.in[1])) +
           ")";
  const char* form = nullptr;
  for (auto& f : kForms)
    if (f.fn == n.fn) form = is_real(n.type) ? f.real : n.type == ExprType::Bool ? f.truth : f.integer;
  MGE_ASSERT(form, "expression node {} of type {} has no text", static_cast<int>(n.fn), static_cast<int>(n.type));
  const char* type = kTypes[static_cast<int>(n.type)];
  std::string out;
  for (const char* p = form; *p; ++p) {
    if (*p == '$')
      out += name(n.in[*++p - '0']);
    else if (*p == '%')
      out += *++p == 't' ? type : n.type == ExprType::I32 ? "unsigned" : "u64";
    else
      out += *p;
  }
  return out;
}

std::string value_name(int arg) { return arg >= 0 ? format("x{}", arg) : format("t{}", -1 - arg); }

// A value of a step, rounded to its dtype, as the single op leaves it in memory.
std::string rounded(DType t, const std::string& v) {
  if (t == DType::F32 || t == DType::F64 || t == DType::I64 || t == DType::Bool) return v;
  return format("load(Store<{}>::from({}))", storage_type(t), v);
}

void write_step(const FusedRegion& r, size_t k, std::string& out) {
  const FusedStep& s = r.steps[k];
  const std::string result = format("  const {} t{} = ", compute_type(s.dtype), k);
  if (s.op->name == "typecvt") {
    out += result + format("load(cast<{}>({}));\n", storage_type(s.dtype), value_name(s.args[0]));
    return;
  }
  const ScalarExpr e = express(*s.op, compute_of(r.dtype_of(s.args.back())), true);
  auto name = [&](int32_t id) {
    const ExprNode& n = e.nodes[static_cast<size_t>(id)];
    return n.fn == ExprFn::Input ? value_name(s.args[n.bits]) : format("s{}_{}", k, id);
  };
  for (size_t i = 0; i < e.nodes.size(); ++i)
    if (e.nodes[i].fn != ExprFn::Input)
      out += format("  const {} s{}_{} = {};\n", kTypes[static_cast<int>(e.nodes[i].type)], k, i,
                    node_text(e.nodes[i], name));
  out += result + rounded(s.dtype, name(e.result)) + ";\n";
}

}  // namespace

const char* storage_type(DType t) { return t <= DType::F64 ? kStorage[static_cast<int>(t)] : nullptr; }
const char* compute_type(Compute c) {
  static constexpr const char* kNames[] = {"bool", "i64", "float", "double"};
  return kNames[static_cast<int>(c)];
}

SmallVec<int, 4> body_results(const FusedRegion& r) {
  SmallVec<int, 4> out;
  const int reduction = r.reduction();
  for (int o : r.outputs)
    if (-1 - o != reduction) out.push_back(o);
  if (reduction >= 0) out.push_back(r.steps[static_cast<size_t>(reduction)].args[0]);
  return out;
}

const char* refuse_region(const FusedRegion& r) {
  if (r.staged()) return "steps read what was reduced";
  for (DType t : r.inputs)
    if (!storage_type(t)) return "an input's dtype has no kernels on the GPU";
  for (auto& s : r.steps) {
    if (!storage_type(s.dtype)) return "a result's dtype has no kernels on the GPU";
    if (s.op->name == "typecvt" || s.op->name == "reduce") continue;
    if (const char* why = express(*s.op, compute_of(r.dtype_of(s.args.back())), true).refusal) return why;
  }
  return nullptr;
}

std::string body_text(const FusedRegion& r, const char* function) {
  const SmallVec<int, 4> results = body_results(r);
  std::string out = format("__device__ inline void {}(", function);
  for (size_t i = 0; i < r.inputs.size(); ++i) out += format("const {} x{}, ", compute_type(r.inputs[i]), i);
  for (size_t o = 0; o < results.size(); ++o)
    out += format("{}{}& y{}", o ? ", " : "", compute_type(r.dtype_of(results[o])), o);
  out += ") {\n";
  for (size_t k = 0; k < r.steps.size(); ++k)
    if (static_cast<int>(k) != r.reduction()) write_step(r, k, out);
  for (size_t o = 0; o < results.size(); ++o) out += format("  y{} = {};\n", o, value_name(results[o]));
  return out + "}\n";
}

FusedRegion region_of(const OpDef& op, const AttrsBase* attrs, std::span<const DType> in) {
  FusedRegion r;
  SmallVec<int, 3> args;
  for (size_t i = 0; i < in.size(); ++i) {
    r.inputs.push_back(in[i]);
    args.push_back(static_cast<int>(i));
  }
  r.add_output(r.add(op, Attrs(attrs), {args.data(), args.size()}));
  return r;
}

}  // namespace mge::cuda
