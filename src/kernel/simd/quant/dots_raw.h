// Products of bytes by the dot product of VNNI, four of them to a 32-bit lane: exact, since nothing saturates. Raw
// pointers, no checks.
//   if (int64_t lanes = dot_lanes()) dots(rows, count, panel, 2, first, sums, ldc);
#pragma once
#include <cstdint>

namespace mge::simd {

/// int32 lanes of its vectors; 0 where the CPU, or the instruction set that is asked for, has none.
int64_t dot_lanes();
/// The most rows of one call.
inline constexpr int64_t kDotRows = 12;

/// Rows of a convolution's taps in channels-last memory. Element k of part p of row i is a[i*distance + part[p] + k].
struct DotRows {
  const uint8_t* a;
  int64_t distance;
  const int64_t* part;
  int64_t parts, length;  // length of a part: a multiple of 4
};
/// sums[i*ldc + j] = first[j] + sum over k of a(i, k) * b(k, j) for i < rows and j < vectors * dot_lanes(); vectors is
/// 1 or 2, b [parts*length/4][vectors*lanes][4]. Rows are written from the first on, each whole.
void dots(const DotRows& a, int64_t rows, const int8_t* b, int vectors, const int32_t* first, int32_t* sums,
          int64_t ldc);

}  // namespace mge::simd
