#include "op/elementwise/elementwise.h"

#include "op/elementwise/typecvt.h"
#include "op/in_build.h"

namespace mge {
namespace {

using namespace body::scalar;

// The C++ type an op body sees for a compute type, and how it lies in memory.
template <Compute c>
struct Plain;
template <>
struct Plain<Compute::F32> {
  using Mem = float;
  using V = float;
};
template <>
struct Plain<Compute::F64> {
  using Mem = double;
  using V = double;
};
template <>
struct Plain<Compute::I64> {
  using Mem = int64_t;
  using V = Int64;
};
template <>
struct Plain<Compute::Bool> {
  using Mem = uint8_t;
  using V = bool;
};
template <class M>
void put(M* out, M v) {
  *out = v;
}
void put(int64_t* out, Int64 v) { *out = v.v; }
void put(uint8_t* out, bool v) { *out = v; }

template <class Op, Compute c, size_t... k>
void scalar_row(const void* const* in, const int64_t* stride, void* out, int64_t n, std::index_sequence<k...>) {
  using Mem = typename Plain<c>::Mem;
  using V = typename Plain<c>::V;
  using Out = std::conditional_t<Op::bool_out, uint8_t, Mem>;
  const Mem* p[] = {static_cast<const Mem*>(in[k])...};
  Out* o = static_cast<Out*>(out);
  for (int64_t i = 0; i < n; ++i) put(o + i, Op::eval(V(p[k][i * stride[k]])...));
}
template <class Op, Compute c>
void row(const void* const* in, const int64_t* stride, void* out, int64_t n) {
  scalar_row<Op, c>(in, stride, out, n, std::make_index_sequence<Op::arity>());
}
template <Compute c>
void where_row(const void* const* in, const int64_t* stride, void* out, int64_t n) {
  using Mem = typename Plain<c>::Mem;
  auto* cond = static_cast<const uint8_t*>(in[0]);
  auto* x = static_cast<const Mem*>(in[1]);
  auto* y = static_cast<const Mem*>(in[2]);
  auto* o = static_cast<Mem*>(out);
  for (int64_t i = 0; i < n; ++i) o[i] = Where::eval(cond[i * stride[0]] != 0, x[i * stride[1]], y[i * stride[2]]);
}

template <class Op>
constexpr ScalarBody make_body() {
  constexpr Domain d = Op::domain;
  ScalarBody b;
  b.arity = Op::arity;
  b.domain = d;
  b.bool_out = Op::bool_out;
  if constexpr (d == Domain::Float || d == Domain::Number || d == Domain::Any) {
    b.row[static_cast<int>(Compute::F32)] = row<Op, Compute::F32>;
    b.row[static_cast<int>(Compute::F64)] = row<Op, Compute::F64>;
  }
  if constexpr (d == Domain::Integer || d == Domain::Number || d == Domain::Any)
    b.row[static_cast<int>(Compute::I64)] = row<Op, Compute::I64>;
  if constexpr (d == Domain::Bool || d == Domain::Any) b.row[static_cast<int>(Compute::Bool)] = row<Op, Compute::Bool>;
  return b;
}
template <class Op>
constexpr ScalarBody kBody = make_body<Op>();
constexpr ScalarBody kWhereBody = {
    3,
    Domain::Any,
    false,
    true,
    {where_row<Compute::Bool>, where_row<Compute::I64>, where_row<Compute::F32>, where_row<Compute::F64>}};

const char* wanted(Domain d) {
  switch (d) {
    case Domain::Float:
      return "floating-point tensors";
    case Domain::Number:
      return "integer or floating-point tensors";
    case Domain::Integer:
      return "integer tensors";
    case Domain::Bool:
      return "bool tensors";
    case Domain::Any:
      return "integer, floating-point or bool tensors";
  }
  return "";
}
bool accepts(Domain d, DType t) {
  switch (d) {
    case Domain::Float:
      return is_float(t);
    case Domain::Number:
      return is_float(t) || is_int(t);
    case Domain::Integer:
      return is_int(t);
    case Domain::Bool:
      return t == DType::Bool;
    case Domain::Any:
      return is_float(t) || is_int(t) || t == DType::Bool;
  }
  return false;
}
// complex64 can be added, subtracted, multiplied and negated.
bool takes_complex(const OpDef& op) {
  return op.name == "add" || op.name == "sub" || op.name == "mul" || op.name == "neg";
}
const char* way_out(Domain d, DType t) {
  if (t == DType::C64) return "complex64 has + - * and negation; real() and imag() take it apart.";
  if (d == Domain::Bool) return "Compare first, for example x != 0.";
  if (t == DType::Bool) return "Cast with astype(\"int32\"), or use logical_and, logical_or, logical_not.";
  return "Cast with astype.";
}

void infer_elementwise(InferCtx& c) {
  const ScalarBody& body = *c.op->scalar;
  const size_t first = body.selects ? 1 : 0;
  if (body.selects)
    MGE_CHECK(c.dtype(0) == DType::Bool, Type,
              "{}: the condition must be a bool tensor; got {}. Compare first, for example x > 0.", c.op->name,
              dtype_name(c.dtype(0)));
  DType t = c.dtype(first);
  for (size_t i = first + 1; i < c.n(); ++i)
    MGE_CHECK(c.dtype(i) == t, Type, "{}: inputs must share one dtype; got {} and {}. Cast one with astype.",
              c.op->name, dtype_name(t), dtype_name(c.dtype(i)));
  MGE_CHECK(accepts(body.domain, t) || (t == DType::C64 && takes_complex(*c.op)), Type, "{}: takes {}; got {}. {}",
            c.op->name, wanted(body.domain), dtype_name(t), way_out(body.domain, t));
  Meta& y = c.out[0];
  y.dtype = body.bool_out ? DType::Bool : t;
  y.shape = c.shape(0);
  for (size_t i = 1; i < c.n(); ++i)
    if (!(c.shape(i) == y.shape)) y.shape = broadcast_shapes(c.op->name.c_str(), y.shape, c.shape(i));
}

void infer_typecvt(InferCtx& c) {
  DType to = attrs_as<TypeCvtAttrs>(c.attrs).dtype, from = c.dtype(0);
  auto known = [](DType t) { return accepts(Domain::Any, t) || t == DType::C64; };
  MGE_CHECK(known(from) && known(to), Type,
            "typecvt: converts between bool, integer, floating-point and complex dtypes; got {} to {}. "
            "Quantised dtypes are converted by quantize and dequantize, low-bit ones by x.numpy().astype.",
            dtype_name(from), dtype_name(to));
  c.out[0].shape = c.shape(0);
  c.out[0].dtype = to;
}

template <class Op>
MGE_INLINED inline void add_op(OpRegistry& r) {
  OpBuilder b = r.op(Op::name);
  if constexpr (Op::arity == 1)
    b.in("x");
  else
    b.in("x", "y");
  b.out("z")
      .infer(infer_elementwise)
      .promote(Op::promote)
      .amp(Op::amp)
      .doc(Op::doc)
      .traits(Op::traits)
      .scalar(&kBody<Op>);
}
template <class... Ops>
void add_ops(OpRegistry& r, OpList<Ops...>) {
  (add_op<Ops>(r), ...);
}

}  // namespace

void register_elementwise(OpRegistry& r) {
  add_ops(r, CheapUnaryOps());
  add_ops(r, ExpUnaryOps());
  add_ops(r, TrigUnaryOps());
  add_ops(r, TestOps());
  add_ops(r, BoolOps());
  add_ops(r, ArithOps());
  add_ops(r, MathBinaryOps());
  add_ops(r, CompareOps());
  add_ops(r, ShiftOps());
  add_ops(r, GradOps());
  r.op(Where::name)
      .in("cond", "x", "y")
      .out("z")
      .infer(infer_elementwise)
      .promote(Where::promote)
      .doc(Where::doc)
      .scalar(&kWhereBody);
  r.op("typecvt")
      .attrs<TypeCvtAttrs>()
      .in("x")
      .out("y")
      .infer(infer_typecvt)
      .traits(kElementwise)
      .keeps_format(KeepsFormat::First)
      .doc("x with another element type; float to integer truncates, anything to bool is x != 0.");
}

}  // namespace mge
