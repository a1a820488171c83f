// Products of bytes by the dot product of ARMv8.2, asked for at run time: Highway has it in no target that GCC 12
// builds.
#include "base/error.h"
#include "kernel/simd/quant/product_raw.h"

#if defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>

namespace mge::simd {
namespace {

constexpr int64_t kColumns = 8, kRows = 8;
#define MGE_DOT __attribute__((target("arch=armv8.2-a+dotprod")))

// R rows against one panel of eight columns. A register of A is 16 k of a row, each lane of it the four that a register
// of B holds for four columns. NOTE(perf): eight rows, 1.3 instructions for each sdot, 16 products each; words take two
// smlal for 8.
template <int R>
MGE_DOT void tile(const int8_t* __restrict a, int64_t kp, const int8_t* __restrict b, int32_t* __restrict c,
                  int64_t ldc) {
  int32x4_t sum[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = vdupq_n_s32(0);
  for (int64_t k = 0; k < kp; k += 16, a += 16, b += 16 * kColumns) {
    int8x16_t row[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) row[r] = vld1q_s8(a + r * kp);
#define MGE_GROUP(lane)                                                              \
  {                                                                                  \
    const int8x16_t b0 = vld1q_s8(b + lane * 32), b1 = vld1q_s8(b + lane * 32 + 16); \
    _Pragma("GCC unroll 8") for (int r = 0; r < R; ++r) {                            \
      sum[r][0] = vdotq_laneq_s32(sum[r][0], b0, row[r], lane);                      \
      sum[r][1] = vdotq_laneq_s32(sum[r][1], b1, row[r], lane);                      \
    }                                                                                \
  }
    MGE_GROUP(0) MGE_GROUP(1) MGE_GROUP(2) MGE_GROUP(3)
#undef MGE_GROUP
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    vst1q_s32(c + r * ldc, sum[r][0]);
    vst1q_s32(c + r * ldc + 4, sum[r][1]);
  }
}

}  // namespace

bool igemm_takes_bytes() {
  static const bool has = (getauxval(AT_HWCAP) & 1 << 20 /* HWCAP_ASIMDDP */) != 0 && igemm_columns() == kColumns;
  return has;
}

void igemm(const int8_t* a, int64_t rows, int64_t kp, const int8_t* b, int64_t columns, int32_t* c, int64_t ldc) {
  using Tile = void (*)(const int8_t*, int64_t, const int8_t*, int32_t*, int64_t);
  static constexpr Tile kTiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>, tile<8>};
  for (int64_t j = 0; j < columns; j += kColumns)
    for (int64_t i = 0; i < rows; i += kRows)
      kTiles[rows - i < kRows ? rows - i : kRows](a + i * kp, kp, b + j * kp, c + i * ldc + j, ldc);
}

}  // namespace mge::simd
#else
namespace mge::simd {
bool igemm_takes_bytes() { return false; }
void igemm(const int8_t*, int64_t, int64_t, const int8_t*, int64_t, int32_t*, int64_t) {
  MGE_ASSERT(false, "products of bytes on a CPU without them");
}
}  // namespace mge::simd
#endif
