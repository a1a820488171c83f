// Vector code for one row of an elementwise op. A fused region runs tile by tile on these and gets the bits of the
// single ops.
//   RowFn add = find_row(op, DType::F32, DType::F32);   add(in, stride, out, n);
#pragma once
#include "op/elementwise/scalar_body.h"
#include "op/opdef.h"

namespace mge {

/// The row function for the best instruction set of this machine, or null when there is none for these dtypes. `in` is
/// the dtype of all inputs (of x and y for where, whose condition is bool), `out` that of the result; typecvt takes
/// both from here. Most ops have none for float16 and bfloat16: convert a tile with typecvt's rows, compute in
/// float32, convert back.
RowFn find_row(const OpDef& op, DType in, DType out);

/// Rebuilds what find_row answers after hwy::SetSupportedTargetsForTest.
void rebuild_rows_for_test();

}  // namespace mge
