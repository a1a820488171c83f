#include "op/opdef.h"

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

void OpRegistry::sized_grad(std::string_view op, std::string_view field) {
  auto& d = const_cast<OpDef&>(get(op));
  const auto& fields = d.schema.defaults;
  for (size_t i = 0; i < fields.size(); ++i)
    if (field.empty() || fields[i].name == field) d.sized_vjp |= uint64_t{1} << i;
}

void OpRegistry::put_back(std::string_view op, std::string_view put) {
  const_cast<OpDef*>(&get(op))->put_back = &get(put);
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
    MGE_CHECK(!is_quant(m->dtype) || op.is(kQuantised), Type,
              "{}: takes no quantised input; got {}. Dequantise it first.", op.name, m->str());
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

}  // namespace mge
