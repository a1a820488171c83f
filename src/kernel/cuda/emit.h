// The text of a region's body: one line per node of each step's expression (op/elementwise/expr.h). Single ops and
// casts are regions of one step, so everything elementwise is written here.
//   void body(float x0, i64 x1, float& y0) { … }         one element, in compute types; every step rounded to its dtype
#pragma once
#include <string>

#include "op/elementwise/fused.h"
#include "op/elementwise/scalar_body.h"

namespace mge::cuda {

/// "float", "Half", "int8_t", … of device/types.cuh; null: the dtype has none.
const char* storage_type(DType t);
const char* compute_type(Compute c);
inline const char* compute_type(DType t) { return compute_type(compute_of(t)); }

/// Why a region has no text, or null.
const char* refuse_region(const FusedRegion& r);
/// Function `body`: x<k> are the inputs, y<o> the region's outputs; the operand of its reduction comes last, where it
/// has one, instead of that output.
std::string body_text(const FusedRegion& r, const char* function = "body");
/// Steps that body_text gives as results, in order.
SmallVec<int, 4> body_results(const FusedRegion& r);

/// The region of one elementwise op or typecvt on these dtypes.
FusedRegion region_of(const OpDef& op, const AttrsBase* attrs, std::span<const DType> in);

}  // namespace mge::cuda
