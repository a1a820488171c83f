// The list of bodies that express() knows. A file of its own, so that Lite does not link what only code generators ask.
#include "op/elementwise/elementwise.h"
#include "op/elementwise/expr_types.h"

namespace mge {
namespace body::expr {

void reduce_huge_lanes(M m, F x, F& r, I& n) {
  F huge(0.f);
  I turns(0);
  scalar::reduce_huge(x, huge, turns);
  r = select(m, huge, r);
  n = select(m, turns, n);
}

}  // namespace body::expr

namespace {

using namespace body::scalar;
namespace be = body::expr;

template <class Op, class V, size_t... k>
int32_t result_of(std::index_sequence<k...>) {
  return Op::eval(V::input(k)...).id;
}
template <class Op, class V>
void write_body(ScalarExpr& e) {
  if constexpr (std::is_same_v<Op, Where>)
    e.result = Where::eval(be::M::input(0), V::input(1), V::input(2)).id;
  else
    e.result = result_of<Op, V>(std::make_index_sequence<Op::arity>());
}

template <class Op>
bool write_op(ScalarExpr& e, const OpDef& op, Compute c) {
  if (op.name != Op::name) return false;
  constexpr Domain d = Op::domain;
  constexpr bool floats = d == Domain::Float || d == Domain::Number || d == Domain::Any,
                 ints = d == Domain::Integer || d == Domain::Number || d == Domain::Any,
                 bools = d == Domain::Bool || d == Domain::Any;
  if constexpr (floats) {
    if (c == Compute::F32) return write_body<Op, be::F>(e), true;
    if (c == Compute::F64) return write_body<Op, be::D>(e), true;
  }
  if constexpr (ints)
    if (c == Compute::I64) return write_body<Op, be::L>(e), true;
  if constexpr (bools)
    if (c == Compute::Bool) return write_body<Op, be::M>(e), true;
  e.refusal = "the op does not take this type";
  return true;
}
template <class... Ops>
bool write_one_of(ScalarExpr& e, const OpDef& op, Compute c, OpList<Ops...>) {
  return (write_op<Ops>(e, op, c) || ...);
}

}  // namespace

int32_t ScalarExpr::add(const ExprNode& n) {
  uint64_t h = hash_mix(static_cast<uint64_t>(n.fn) << 8 | static_cast<uint64_t>(n.type), n.bits);
  for (int32_t i : n.in) h = hash_mix(h, static_cast<uint64_t>(i));
  auto [b, e] = ids_.equal_range(h);
  for (; b != e; ++b)
    if (nodes[static_cast<size_t>(b->second)] == n) return b->second;
  nodes.push_back(n);
  return ids_.emplace(h, static_cast<int32_t>(nodes.size() - 1))->second;
}

ScalarExpr express(const OpDef& op, Compute c, bool library) {
  ScalarExpr e;
  be::t_building = &e;
  bool found = write_one_of(e, op, c, CheapUnaryOps()) || write_one_of(e, op, c, ExpUnaryOps()) ||
               write_one_of(e, op, c, TrigUnaryOps()) || write_one_of(e, op, c, TestOps()) ||
               write_one_of(e, op, c, BoolOps()) || write_one_of(e, op, c, ArithOps()) ||
               write_one_of(e, op, c, MathBinaryOps()) || write_one_of(e, op, c, CompareOps()) ||
               write_one_of(e, op, c, ShiftOps()) || write_one_of(e, op, c, GradOps()) ||
               write_one_of(e, op, c, OpList<Where>());
  be::t_building = nullptr;
  if (!found) e.refusal = "the op has no scalar body";
  if (e.calls_library && !library) e.refusal = "float64 functions are those of the C library";
  if (e.refusal) {
    e.nodes.clear();
    e.result = -1;
  }
  return e;
}

}  // namespace mge
