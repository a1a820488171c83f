#include "pass/rewrite.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "ir/builder.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr int64_t kMaxLooked = 4096;  // elements of a constant that number() compares

float half_to_float(uint16_t h) {
  const float magnitude =
      std::ldexp(static_cast<float>((h & 0x7c00) ? 0x400 | (h & 0x3ff) : h & 0x3ff), std::max((h >> 10 & 31), 1) - 25);
  if ((h & 0x7c00) == 0x7c00) return (h & 0x3ff) ? NAN : (h >> 15 ? -INFINITY : INFINITY);
  return h >> 15 ? -magnitude : magnitude;
}

template <class T>
T load(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

std::optional<double> read_number(DType t, const void* p) {
  switch (t) {
    case DType::Bool:
    case DType::U8:
      return load<uint8_t>(p);
    case DType::I8:
      return load<int8_t>(p);
    case DType::U16:
      return load<uint16_t>(p);
    case DType::I16:
      return load<int16_t>(p);
    case DType::I32:
      return load<int32_t>(p);
    case DType::I64: {
      const auto v = load<int64_t>(p);
      if (v > int64_t{1} << 53 || v < -(int64_t{1} << 53)) return std::nullopt;
      return static_cast<double>(v);
    }
    case DType::F16:
      return half_to_float(load<uint16_t>(p));
    case DType::BF16:
      return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(p)) << 16);
    case DType::F32:
      return load<float>(p);
    case DType::F64:
      return load<double>(p);
    default:
      return std::nullopt;
  }
}

// Whole numbers are exact in a float up to 2^mantissa.
struct Kind {
  bool floating, is_signed;
  int bits;              // of the magnitude of integers, or of the significand
  int min_exp, max_exp;  // floats
};
std::optional<Kind> kind(DType t) {
  switch (t) {
    case DType::Bool:
      return Kind{false, false, 1, 0, 0};
    case DType::U8:
      return Kind{false, false, 8, 0, 0};
    case DType::I8:
      return Kind{false, true, 7, 0, 0};
    case DType::U16:
      return Kind{false, false, 16, 0, 0};
    case DType::I16:
      return Kind{false, true, 15, 0, 0};
    case DType::I32:
      return Kind{false, true, 31, 0, 0};
    case DType::I64:
      return Kind{false, true, 63, 0, 0};
    case DType::F16:
      return Kind{true, true, 11, -24, 16};
    case DType::BF16:
      return Kind{true, true, 8, -133, 128};
    case DType::F32:
      return Kind{true, true, 24, -149, 128};
    case DType::F64:
      return Kind{true, true, 53, -1074, 1024};
    default:
      return std::nullopt;
  }
}

bool all_ones(const Shape& s) {
  for (int64_t d : s)
    if (d != 1) return false;
  return true;
}

}  // namespace

bool holds_exactly(DType to, DType from) {
  if (to == from) return true;
  auto t = kind(to), f = kind(from);
  if (!t || !f || to == DType::Bool) return false;
  if (f->floating) return t->floating && t->bits >= f->bits && t->min_exp <= f->min_exp && t->max_exp >= f->max_exp;
  if (t->floating) return t->bits >= f->bits && t->max_exp > f->bits;
  return t->bits >= f->bits && (t->is_signed || !f->is_signed);
}

NodeId Rewriter::made_by(ValueId v, std::string_view op) const {
  const OpDef* p = g.producer_op(v);
  return p && p->name == op ? g.value(v).producer : kNone;
}

ValueId Rewriter::of(ValueId v, std::string_view op) const {
  const NodeId p = made_by(v, op);
  return p == kNone ? kNone : g.node(p).inputs[0];
}

std::optional<double> Rewriter::number(ValueId v) const {
  const ir::Constant* c = g.constant_of(v);
  if (!c || !c->storage) return std::nullopt;
  const Meta& m = g.meta(v);
  const int64_t count = m.shape.numel();
  const size_t size = dtype_size(m.dtype);
  if (count < 1 || count > kMaxLooked || size == 0 || is_quant(m.dtype)) return std::nullopt;
  const char* p = static_cast<const char*>(c->data());
  for (int64_t i = 1; i < count; ++i)
    if (std::memcmp(p, p + static_cast<size_t>(i) * size, size) != 0) return std::nullopt;
  return read_number(m.dtype, p);
}

bool Rewriter::same_as(ValueId x) const {
  const Meta& m = g.meta(x);
  if (!m.same_type(meta()) || m.cn != meta().cn) return false;
  if (bound) return true;
  for (ValueId v : node().inputs)  // what it is computed with must not decide the shape
    if (v != x && (g.meta(v).shape.rank > m.shape.rank || !is_const(v) || !all_ones(g.meta(v).shape))) return false;
  return node().sizes.empty() && node().op->is(kElementwise);
}

ValueId Rewriter::emit(std::string_view op, Attrs attrs, std::initializer_list<ValueId> in) {
  const OpDef& d = OpRegistry::global().get(op);
  if (!attrs && d.has_attrs) attrs = d.schema.build(d.name, {});
  return g.node(g.add_node(d, std::move(attrs), {in.begin(), in.size()}, node().loc, n)).outputs[0];
}

ValueId Rewriter::scalar_like(double value, ValueId x) {
  Meta m;
  m.dtype = g.meta(x).dtype;
  m.cn = g.meta(x).cn;
  return ir::add_scalar(g, value, m);
}

void replace_value(Graph& g, ValueId from, ValueId to) {
  const std::string name = g.value(from).name;
  g.replace_all_uses(from, to);
  const ir::Value& v = g.value(to);
  if (!name.empty() && v.name.empty() && v.kind == ir::ValueKind::Result) g.set_name(to, name);
}

void erase_unread(Graph& g, NodeId n) {
  ir::Rewrite rewrite(g);
  erase_unread(g, n, rewrite);
}

void erase_unread(Graph& g, NodeId n, ir::Rewrite& rewrite) {
  std::vector<NodeId> look{n};
  while (!look.empty()) {
    const NodeId at = look.back();
    look.pop_back();
    const ir::Node& x = g.node(at);
    if (x.erased || ir::takes_token(*x.op)) continue;
    bool read = false;
    for (ValueId v : x.outputs) read |= g.use_count(v) > 0;
    if (read) continue;
    auto inputs = x.inputs;
    for (auto& s : x.sizes) inputs.push_back(s.value);
    rewrite.erase(at);
    for (ValueId v : inputs)
      if (g.value(v).kind == ir::ValueKind::Result) look.push_back(g.value(v).producer);
  }
}

bool apply_rules(Rewriter r, std::span<const Rule> rules) {
  constexpr int kMaxRounds = 8;  // a chain of rewrites is settled in one or two; no rule undoes another
  std::unordered_map<const OpDef*, std::vector<const Rule*>> table;
  for (const Rule& rule : rules)
    if (const OpDef* op = OpRegistry::global().registered(rule.op))  // a build may be without it
      if (!rule.rewrite_bit || r.asked(rule.rewrite_bit)) table[op].push_back(&rule);
  bool changed = false, more = true;
  for (int round = 0; more && round < kMaxRounds; ++round) {
    more = false;
    for (NodeId n : r.g.order()) {
      if (r.g.node(n).erased) continue;
      r.n = n;
      auto found = table.find(r.node().op);
      if (found == table.end()) continue;
      for (const Rule* rule : found->second) {
        ir::Rewrite rewrite(r.g);
        const ValueId from = r.node().outputs[0], to = rule->rewrite(r);
        if (to == kNone) continue;
        more = changed = true;
        if (to == from) continue;  // changed in its place
        replace_value(r.g, from, to);
        erase_unread(r.g, n, rewrite);
        break;
      }
    }
  }
  return changed;
}

}  // namespace mge::pass
