// Exact products of small integers: 16-bit operands, pairs of products added in 32 bits, which never saturates for
// values up to 255 (the 8-bit multiply-add of x86 before VNNI does); or 8-bit ones, four products at a time, on an ARM
// that has the dot product. Raw pointers, no checks.
#pragma once
#include <cstdint>

#include "kernel/quant_store.h"

namespace mge::simd {

/// Columns of a panel; multiples of it are what igemm takes.
int64_t igemm_columns();
/// Where element (k, j) of a [kp, columns] matrix lies when packed in panels [columns/n][kp/kGroup][n][kGroup].
template <class T>
struct Panels {
  static constexpr int64_t kGroup = 4 / static_cast<int64_t>(sizeof(T));  // what one lane multiplies
  int64_t kp, n;  // kp: of padded_k; n = igemm_columns(), a power of two
  int shift = __builtin_ctzll(static_cast<uint64_t>(n));
  int64_t at(int64_t k, int64_t j) const {
    return (((j >> shift) * kp + (k & ~(kGroup - 1))) << shift) + (j & (n - 1)) * kGroup + (k & (kGroup - 1));
  }
};
/// k with the zeros that rows and panels have at their end: whole pairs of words, whole registers of bytes.
template <class T>
constexpr int64_t padded_k(int64_t k) {
  constexpr int64_t kWhole = sizeof(T) == 1 ? 16 : 2;
  return (k + kWhole - 1) / kWhole * kWhole;
}
/// c[i*ldc + j] = sum over k of a[i*kp + k] * b(k, j), for i < rows and j < columns.
void igemm(const int16_t* a, int64_t rows, int64_t kp, const int16_t* b, int64_t columns, int32_t* c, int64_t ldc);
/// The same, only where the CPU igemm_takes_bytes().
void igemm(const int8_t* a, int64_t rows, int64_t kp, const int8_t* b, int64_t columns, int32_t* c, int64_t ldc);
bool igemm_takes_bytes();

/// sums[j] = sum over i < k of a[i] * b[j*k + i], for j < rows.
void byte_dots(const int16_t* a, const int8_t* b, int64_t rows, int64_t k, int32_t* sums);

/// sums[i] = sum over t < taps of w[t] * x[from[t] + i], for i < n: a row of a depthwise convolution. Reads and writes
/// up to kTapSlack elements beyond.
inline constexpr int64_t kTapSlack = 64;
void tap_sums(const int16_t* x, const int64_t* from, const int16_t* w, int64_t taps, int64_t n, int32_t* sums);

/// Sums as 8-bit integers (kernel/quant_store.h).
void to_bytes(const ToBytes& to, const SumRow& r, int8_t* y);
void to_bytes(const ToBytes& to, const SumRow& r, uint8_t* y);

/// float32 as 8-bit integers.
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, int8_t* y);
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, uint8_t* y);
/// The real numbers of 8-bit integers.
void dequantize(const int8_t* x, int64_t n, float scale, int32_t zero, float* y);
void dequantize(const uint8_t* x, int64_t n, float scale, int32_t zero, float* y);

}  // namespace mge::simd
