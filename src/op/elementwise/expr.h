// The scalar body of an elementwise op as an expression: op/elementwise/scalar_math.h and op/elementwise/elementwise.h
// instantiated on types that build a graph instead of computing. A code generator walks the nodes and emits one
// instruction each; what it emits has the bits of the kernels, because it is the body the kernels run.
//   ScalarExpr e = express(op, Compute::F32);      // e.refusal says why there is none
//   for (const ExprNode& n : e.nodes) …            // operands come before their users; e.result is the last word
// Every operation has one right answer: + - * / sqrt fma and conversions round to nearest even, comparisons follow
// IEEE 754, integers wrap, Fmod is exact. Nothing may be contracted or reassociated.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "op/elementwise/scalar_body.h"
#include "op/opdef.h"

namespace mge {

enum class ExprType : uint8_t { Bool, I32, I64, F32, F64 };

enum class ExprFn : uint8_t {
  Input,     // operand `bits` of the op
  Constant,  // `bits`, zero-extended
  Add,
  Sub,
  Mul,
  Div,  // floats; I64: towards zero, the divisor is neither 0 nor -1
  Neg,
  Abs,
  Fma,
  Sqrt,
  Floor,
  Ceil,
  Trunc,
  CopySign,  // magnitude of the first, sign of the second
  Fmod,      // C's fmod
  Lt,
  Le,
  Eq,
  Ne,   // true for NaN
  And,  // of bits; of truths for Bool
  Or,
  Xor,
  Not,     // Bool
  Shl,     // by the second operand, in 0..bits-1
  Sar,     // keeps the sign
  Select,  // second where the first (Bool) holds, else third
  BitCast,
  Convert,  // I32 <-> I64 (low word), I32 and I64 -> floats, F64 -> F32
  Library,  // F64: the function kLibraryFunctions[bits] of one or two operands; only where express was asked for it
};

/// What bodies call for float64: functions of the C library, and short formulas of those (sigmoid, gelu, gelu_slope;
/// power: pow with exact squares and cubes).
inline constexpr const char* kLibraryFunctions[] = {
    "exp",  "expm1", "log",   "log1p", "sin", "cos",  "tan",     "asin", "acos",       "atan",  "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "gelu", "gelu_slope", "atan2", "power"};

struct ExprNode {
  ExprFn fn = ExprFn::Constant;
  ExprType type = ExprType::F32;
  int32_t in[3] = {-1, -1, -1};
  uint64_t bits = 0;
  bool operator==(const ExprNode&) const = default;
};

struct ScalarExpr {
  std::vector<ExprNode> nodes;
  int32_t result = -1;
  const char* refusal = nullptr;
  bool calls_library = false;

  ExprType type(int32_t id) const { return nodes[static_cast<size_t>(id)].type; }
  /// Appends a node, or finds the one that is already there.
  int32_t add(const ExprNode& n);

 private:
  std::unordered_multimap<uint64_t, int32_t> ids_;
};

/// The body for a compute type. Refused: types the op's domain excludes, ops without a scalar body, and, unless
/// `library`, float64 functions, which are the C library's.
ScalarExpr express(const OpDef& op, Compute c, bool library = false);

}  // namespace mge
