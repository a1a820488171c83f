#include "op/opdef.h"
#include "op/in_build.h"

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

void OpBuilder::add_inputs(OpDef& d, std::initializer_list<const char*> names, bool required) {
  d.inputs.insert(d.inputs.end(), names.begin(), names.end());
  if (required) d.required = static_cast<uint8_t>(d.inputs.size());
}

void OpBuilder::add_variadic(OpDef& d, const char* name) {
  d.inputs.emplace_back(name);
  d.required = 1;
  d.variadic = true;
}

void OpBuilder::add_outputs(OpDef& d, std::initializer_list<const char*> names) {
  d.outputs.insert(d.outputs.end(), names.begin(), names.end());
}

OpDef* OpRegistry::add(const char* name) {
  MGE_ASSERT(!registered(name), "op {} is registered twice", name);
  OpDef* d = ops_.emplace_back(std::make_unique<OpDef>()).get();
  d->id = static_cast<OpId>(ops_.size() - 1);
  d->name = name;
  return d;
}

const char* OpRegistry::build_has() { return build_list::kMade; }

std::vector<const OpDef*> OpRegistry::asked_for() const {
  std::vector<const OpDef*> out;
  for (auto& d : ops_)
    if (d->asked.load(std::memory_order_relaxed)) out.push_back(d.get());
  return out;
}

// Not counted as asked for: something is added to it.
static OpDef& to_complete(const OpRegistry& r, std::string_view op) {
  auto* d = const_cast<OpDef*>(r.registered(op));
  MGE_ASSERT(d, "a gradient or the like of {}, which is no op", op);
  return *d;
}

void OpRegistry::grad(std::string_view op, void (*vjp)(VjpCtx&), Saves saves, Saves (*saves_of)(const AttrsBase*)) {
  OpDef& d = to_complete(*this, op);
  d.vjp = vjp;
  d.saves = saves;
  d.saves_of = saves_of;
}

void OpRegistry::sized_grad(std::string_view op, std::string_view field) {
  OpDef& d = to_complete(*this, op);
  const auto& fields = d.schema.defaults;
  for (size_t i = 0; i < fields.size(); ++i)
    if (field.empty() || fields[i].name == field) d.sized_vjp |= uint64_t{1} << i;
}

void OpRegistry::put_back(std::string_view op, std::string_view put) {
  to_complete(*this, op).put_back = &to_complete(*this, put);
}

const OpDef* OpRegistry::registered(std::string_view name) const {
  for (auto& d : ops_)  // looked up once per call site or file node, never on the hot path
    if (d->name == name) return d.get();
  return nullptr;
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const OpDef* d = registered(name);
  if (d) d->asked.store(true, std::memory_order_relaxed);
  return d;
}

const OpDef& OpRegistry::get(std::string_view name) const {
  if (auto* d = find(name)) return *d;
  if (!in_build(name))
    fail(ErrorKind::NotImplemented,
         "op {}: is not in this runtime, which has {}. Use a build with all ops (MGE_OPS=all).", name, build_has());
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
