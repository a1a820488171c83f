// Rows of tensor elements to and from the few types that kernels compute in (op/elementwise/scalar_body.h).
#pragma once
#include "op/elementwise/scalar_body.h"

namespace mge {

/// Rows handed to these functions have at most this many elements.
constexpr int64_t kRowTile = 512;

/// dst[i] = src[i * stride], converted from dtype `t` to compute type `c` by the rules of typecvt.
void load_row(DType t, const void* src, int64_t stride, Compute c, void* dst, int64_t n);
/// dst[i * stride] = src[i], converted from compute type `c` to dtype `t`.
void store_row(DType t, void* dst, int64_t stride, Compute c, const void* src, int64_t n);

/// A number as one element of dtype `t` by the rules of typecvt, so that it means the same as a constant, a scalar
/// tensor and a filled one.
void write_scalar(void* p, DType t, double v);

constexpr size_t compute_size(Compute c) { return c == Compute::Bool ? 1 : c == Compute::F32 ? 4 : 8; }

}  // namespace mge
