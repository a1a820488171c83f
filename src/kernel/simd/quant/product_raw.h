// Exact products of small integers: 16-bit operands, pairs of products added in 32 bits, which never saturates for
// values up to 255 (the 8-bit multiply-add of x86 before VNNI does). Raw pointers, no checks.
#pragma once
#include <cstdint>

#include "kernel/quant_store.h"

namespace mge::simd {

/// Columns of a panel; multiples of it are what igemm takes.
int64_t igemm_columns();
/// Where element (k, j) of a [kp, columns] matrix lies when packed in panels [columns/n][kp/2][n][2]; kp is even.
struct Panels {
  int64_t kp, n;  // n = igemm_columns()
  int64_t at(int64_t k, int64_t j) const { return j / n * kp * n + k / 2 * n * 2 + j % n * 2 + k % 2; }
};
/// c[i*ldc + j] = sum over k of a[i*kp + k] * b(k, j), for i < rows and j < columns.
void igemm(const int16_t* a, int64_t rows, int64_t kp, const int16_t* b, int64_t columns, int32_t* c, int64_t ldc);

/// Sums as 8-bit integers (kernel/quant_store.h).
void to_bytes(const ToBytes& to, const SumRow& r, int8_t* y);
void to_bytes(const ToBytes& to, const SumRow& r, uint8_t* y);

/// float32 as 8-bit integers.
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, int8_t* y);
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, uint8_t* y);

}  // namespace mge::simd
