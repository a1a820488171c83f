// The instructions are asked for at run time: Highway 1.0 has them in no target.
#include "kernel/simd/quant/dots_raw.h"

#include "base/error.h"
#include "kernel/simd/quant/product_raw.h"
#include "kernel/simd/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

namespace mge::simd {
namespace {

#define MGE_VNNI512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define MGE_VNNI256 __attribute__((target("avx2,avxvnni")))

int32_t four(const uint8_t* a) {
  int32_t word;
  std::memcpy(&word, a, sizeof word);
  return word;
}

// A build for some instruction sets alone (MGE_ISAS) may leave out the wide tiles.
#ifdef MGE_SOME_ISAS
constexpr bool kHas512 = MGE_ISA_AVX512;
#else
constexpr bool kHas512 = true;
#endif

// R rows against a panel of V vectors. NOTE(perf): 24 sums, 2 vectors of the panel and one of a row are 27 registers of
// 32; 256 bits have half of them, so there calls of more than 4 rows are cut.
#define MGE_DOT_TILE(name, target, Vec, kLanes, load, broadcast, dot, store)                                   \
  template <int R, int V>                                                                                      \
  target void name(const DotRows& a, int64_t row, const int8_t* __restrict b, const int32_t* __restrict first, \
                   int32_t* __restrict sums, int64_t ldc) {                                                    \
    Vec acc[R][V];                                                                                             \
    _Pragma("GCC unroll 12") for (int r = 0; r < R; ++r) _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v)   \
        acc[r][v] = load(first + v * kLanes);                                                                  \
    for (int64_t p = 0; p < a.parts; ++p) {                                                                    \
      const uint8_t* x = a.a + row * a.distance + a.part[p];                                                   \
      for (int64_t k = 0; k < a.length; k += 4, x += 4, b += V * kLanes * 4) {                                 \
        Vec col[V];                                                                                            \
        _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) col[v] = load(b + v * kLanes * 4);                 \
        _Pragma("GCC unroll 12") for (int r = 0; r < R; ++r) {                                                 \
          const Vec w = broadcast(four(x + r * a.distance));                                                   \
          _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v) acc[r][v] = dot(acc[r][v], w, col[v]);           \
        }                                                                                                      \
      }                                                                                                        \
    }                                                                                                          \
    _Pragma("GCC unroll 12") for (int r = 0; r < R; ++r) _Pragma("GCC unroll 2") for (int v = 0; v < V; ++v)   \
        store(sums + r * ldc + v * kLanes, acc[r][v]);                                                         \
  }

#define MGE_STORE256(to, v) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v)
#define MGE_LOAD256(from) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
MGE_DOT_TILE(tile512, MGE_VNNI512, __m512i, 16, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_dpbusd_epi32,
             _mm512_storeu_si512)
MGE_DOT_TILE(tile256, MGE_VNNI256, __m256i, 8, MGE_LOAD256, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32, MGE_STORE256)

using Tile = void (*)(const DotRows&, int64_t, const int8_t*, const int32_t*, int32_t*, int64_t);
#define MGE_TILES(tile, V) tile<1, V>, tile<2, V>, tile<3, V>, tile<4, V>
constexpr Tile k512[2][kDotRows] = {{MGE_TILES(tile512, 1), tile512<5, 1>, tile512<6, 1>, tile512<7, 1>, tile512<8, 1>,
                                     tile512<9, 1>, tile512<10, 1>, tile512<11, 1>, tile512<12, 1>},
                                    {MGE_TILES(tile512, 2), tile512<5, 2>, tile512<6, 2>, tile512<7, 2>, tile512<8, 2>,
                                     tile512<9, 2>, tile512<10, 2>, tile512<11, 2>, tile512<12, 2>}};
constexpr Tile k256[2][4] = {{MGE_TILES(tile256, 1)}, {MGE_TILES(tile256, 2)}};

// Bits of leaf 7 and of its second half; the system keeps the registers where Highway chose the instruction set.
bool has_vnni512() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 11);
}
bool has_vnni256() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

}  // namespace

int64_t dot_lanes() {
  static const bool wide = has_vnni512(), narrow = has_vnni256();
  const int64_t columns = igemm_columns();  // two vectors of the instruction set that is in use
  if (kHas512 && columns == 32 && wide) return 16;
  return columns == 16 && narrow ? 8 : 0;
}

void dots(const DotRows& a, int64_t rows, const int8_t* b, int vectors, const int32_t* first, int32_t* sums,
          int64_t ldc) {
  const bool wide = kHas512 && dot_lanes() == 16;
  const Tile* tiles = wide ? k512[vectors - 1] : k256[vectors - 1];
  const int64_t most = wide ? kDotRows : 4;
  for (int64_t i = 0; i < rows; i += most)
    tiles[(rows - i < most ? rows - i : most) - 1](a, i, b, first, sums + i * ldc, ldc);
}

}  // namespace mge::simd
#else
namespace mge::simd {
int64_t dot_lanes() { return 0; }
void dots(const DotRows&, int64_t, const int8_t*, int, const int32_t*, int32_t*, int64_t) {
  MGE_ASSERT(false, "products of bytes on a CPU without them");
}
}  // namespace mge::simd
#endif
