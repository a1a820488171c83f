// How the engine evaluates an elementwise op without a compiler: rows of plain values, one function per compute type.
// The same signature serves the vector kernels (kernel/simd/elementwise/rows.h), so a fused region runs tile by tile on
// either.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace mge {

/// out[i] = op(in[0][i], in[1][i], …) for i < n. in_stride[k] is 1, or 0 for a single value that serves the whole row.
/// `out` may be the same memory as an input of stride 1 and equal element size, otherwise it may not overlap.
using RowFn = void (*)(const void* const* in, const int64_t* in_stride, void* out, int64_t n);

/// What a row function computes in. Narrow types are converted on load and store: float16 and bfloat16 through F32,
/// every integer through I64 (wrapping when stored).
enum class Compute : uint8_t { Bool, I64, F32, F64 };
constexpr int kComputeCount = 4;
inline Compute compute_of(DType t) {
  return t == DType::Bool ? Compute::Bool : t == DType::F64 ? Compute::F64 : is_float(t) ? Compute::F32 : Compute::I64;
}

/// Which dtypes an op takes.
enum class Domain : uint8_t {
  Float,   // floating point
  Number,  // integers and floating point
  Any,     // numbers and bool
  Integer,
  Bool,
};

struct ScalarBody {
  uint8_t arity = 1;
  Domain domain = Domain::Float;
  bool bool_out = false;          // otherwise the output has the input's dtype
  bool selects = false;           // where: input 0 is bool, the others and the output share a dtype
  RowFn row[kComputeCount] = {};  // null where the domain excludes the type; bool is one byte, 0 or 1
};

}  // namespace mge
