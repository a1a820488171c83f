// float32 matrix products on the CPU. Row-major; leading dimensions are in elements.
//
//   sgemm(false, true, m, n, k, x, k, w, k, y, n, false);   // y[m,n] = x[m,k] · w[n,k]ᵀ
//
// Each element of C is a sum over k in one fixed order: fused multiply-adds in sequence inside a k-block, blocks added
// in sequence; the blocks depend on k alone. So results do not depend on threads, on m and n, or on where in C the
// element sits. (AVX2 and AVX-512 give the same bits; SSE4 has no fused multiply-add and does not.) Arguments are not
// checked. C must not overlap A or B. No allocation after the first calls (thread-local scratch that grows).
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace mge::simd {

/// What is done with rows [row, row + rows) and columns [column, column + columns) of C once they are complete and
/// still in the cache. Rows are counted over all products of a batch. It may be called on several threads at once.
using BlockFn = FunctionRef<void(int64_t row, int64_t rows, int64_t column, int64_t columns)>;

// C[m,n] = op(A)[m,k] · op(B)[k,n], plus the old C when `accumulate`; then each row plus bias[n], if there is one.
// op(A) is A, or its transpose when `ta` (A is then [k,m]). k == 0 gives zeros (or leaves C when accumulating); m == 0
// or n == 0 does nothing.
void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
           float* c, int64_t ldc, bool accumulate, const float* bias = nullptr, const BlockFn* done = nullptr);

// `batch` products; matrix i starts at a + i * stride_a and so on. A stride of 0 in a or b shares that matrix.
void sgemm_batched(int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   int64_t stride_a, const float* b, int64_t ldb, int64_t stride_b, float* c, int64_t ldc,
                   int64_t stride_c, bool accumulate, const float* bias = nullptr, const BlockFn* done = nullptr);

// A matrix B that serves many products can be packed once, in parallel; sgemm_packed then gives the bits of sgemm. The
// order is that of the instruction set in use.
int64_t packed_floats(int64_t n, int64_t k);
void pack_b(bool tb, int64_t n, int64_t k, const float* b, int64_t ldb, float* to);
void sgemm_packed(bool ta, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* packed, float* c,
                  int64_t ldc, const float* bias = nullptr, const BlockFn* done = nullptr);

}  // namespace mge::simd
