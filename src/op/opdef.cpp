#include "op/opdef.h"

#include "op/scalar_body.h"

#include <algorithm>

namespace mge {

OpRegistry& OpRegistry::global() {
  static OpRegistry* r = [] {
    auto* reg = new OpRegistry;
    register_all(*reg);
#ifndef MGE_LITE_ONLY
    register_all_grads(*reg);
#endif
    return reg;
  }();
  return *r;
}

OpBuilder OpRegistry::op(const char* name) {
  MGE_ASSERT(!find(name), "op {} is registered twice", name);
  OpDef* d = ops_.emplace_back(std::make_unique<OpDef>()).get();
  d->id = static_cast<OpId>(ops_.size() - 1);
  d->name = name;
  return OpBuilder(d);
}

void OpRegistry::grad(std::string_view op, void (*vjp)(VjpCtx&), Saves saves, Saves (*saves_of)(const AttrsBase*)) {
  auto* d = const_cast<OpDef*>(&get(op));
  d->vjp = vjp;
  d->saves = saves;
  d->saves_of = saves_of;
}

const OpDef* OpRegistry::find(std::string_view name) const {
  for (auto& d : ops_)  // looked up once per call site or file node, never on the hot path
    if (d->name == name) return d.get();
  return nullptr;
}

const OpDef& OpRegistry::get(std::string_view name) const {
  if (auto* d = find(name)) return *d;
  std::string near;
  for (auto& d : ops_)
    if (d->name.find(name) != std::string::npos || name.find(d->name) != std::string::npos)
      near += (near.empty() ? "" : ", ") + d->name;
  fail(ErrorKind::Value, "op: there is no op '{}'.{}", name, near.empty() ? "" : " Did you mean " + near + "?");
}

void infer_op(const OpDef& op, const AttrsBase* attrs, std::span<const Meta* const> in, std::span<Meta> out) {
  bool arity = in.size() >= op.required && (op.variadic || in.size() <= op.inputs.size());
  MGE_CHECK(arity, Type, "{}: takes {}{} inputs; got {}.", op.name, op.required,
            op.variadic                      ? " or more"
            : op.required < op.inputs.size() ? format("..{}", op.inputs.size())
                                             : "",
            in.size());
  InferCtx c{&op, attrs, in, out};
  try {
    op.infer(c);
  } catch (const Error& e) {  // a helper that knows shapes or devices, but not for whom
    if (e.text().starts_with(op.name) || e.kind() == ErrorKind::Internal) throw;
    throw Error(e.kind(), op.name + ": " + e.text());
  }
  const CompNode* cn = nullptr;  // of the first input that has one
  for (auto* m : in) {
    if (!m->cn || m->cn == cn) continue;
    if (!cn) cn = m->cn;
    if (cn->same_as(*m->cn)) continue;
    fail(ErrorKind::Value, "{}: ambiguous device; inputs are on {} and {}. Move one with .to().", op.name, cn->logical,
         m->cn->logical);
  }
  for (auto& m : out) {
    check_shape(op.name.c_str(), m.shape);
    if (!m.cn) m.cn = cn;  // an op that moves its value to another device has said so
  }
}

DType promote_types(std::string_view who, DType a, DType b) {
  if (a == b) return a;
  if (is_quant(a) || is_quant(b)) {
    MGE_CHECK(!(is_quant(a) && is_quant(b)), Type, "{}: quantised dtypes {} and {} differ.", who, dtype_name(a),
              dtype_name(b));
    return is_quant(a) ? a : b;
  }
  auto real = [](DType t) { return is_float(t) || is_int(t) || t == DType::Bool; };
  if ((a == DType::C64 && real(b)) || (b == DType::C64 && real(a))) return DType::C64;
  auto category = [](DType t) { return is_float(t) ? 3 : is_int(t) ? 2 : t == DType::Bool ? 1 : 0; };
  int ca = category(a), cb = category(b);
  MGE_CHECK(ca && cb, Type, "{}: no common dtype for {} and {}. Cast one with astype.", who, dtype_name(a),
            dtype_name(b));
  if (ca != cb) {
    if (a == DType::F64 || b == DType::F64) return DType::F64;
    return DType::F32;
  }
  if (ca == 3) {  // float16 with anything else counts as float32
    if (a == DType::F64 || b == DType::F64) return DType::F64;
    return DType::F32;
  }
  MGE_CHECK(is_unsigned(a) == is_unsigned(b), Type,
            "{}: dtype promotion rule between different signedness is undefined; got {} and {}. Cast one with astype.",
            who, dtype_name(a), dtype_name(b));
  return std::max(a, b);  // I8 < I16 < I32 < I64 and U8 < U16 by declaration order
}

bool promote_op(const OpDef& op, std::span<const Meta* const> in, std::span<DType> want) {
  for (size_t i = 0; i < in.size(); ++i) want[i] = in[i]->dtype;
  if (op.promote == Promote::None || in.empty()) return false;
  if (op.promote == Promote::Bool) {
    for (auto* m : in)
      MGE_CHECK(m->dtype == DType::Bool, Type, "{}: needs bool tensors; got {}. Compare first, for example x > 0.",
                op.name, dtype_name(m->dtype));
    return false;
  }
  const size_t first = op.scalar && op.scalar->selects ? 1 : 0;  // the condition of a select keeps its dtype
  DType common = in[first]->dtype;
  for (size_t i = first + 1; i < in.size(); ++i) {
    if (op.promote == Promote::Same)
      MGE_CHECK(in[i]->dtype == common, Type, "{}: inputs must share one dtype; got {} and {}. Cast one with astype.",
                op.name, dtype_name(common), dtype_name(in[i]->dtype));
    else if (in[i]->dtype != common)
      common = promote_types(op.name, common, in[i]->dtype);
  }
  if (op.promote == Promote::Float && (is_int(common) || common == DType::Bool)) common = DType::F32;
  bool any = false;
  for (size_t i = first; i < in.size(); ++i) {
    any |= want[i] != common;
    want[i] = common;
  }
  return any;
}

}  // namespace mge
