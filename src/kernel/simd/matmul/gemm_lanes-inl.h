// Vectors of float with safe tails, and a transpose: what the raw kernels share, once per instruction set.
#if defined(MGE_GEMM_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_GEMM_LANES_INL_H_
#undef MGE_GEMM_LANES_INL_H_
#else
#define MGE_GEMM_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernel/simd/exact-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using MF = hn::Mask<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
using Pair = std::conditional_t<HWY_HAVE_FLOAT64, double, uint64_t>;  // two floats that move together
// Masked loads and stores that do not touch the masked-out memory.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr bool kMaskIsSafe = true;
#else
constexpr bool kMaskIsSafe = false;
#endif

// The first n lanes from p, zeros after; m == FirstN(n).
HWY_INLINE VF load_n(MF m, const float* HWY_RESTRICT p, int n) {
  if constexpr (kMaskIsSafe) return hn::MaskedLoad(m, DF(), p);
  HWY_ALIGN float tmp[kLanes] = {};
  for (int i = 0; i < n; ++i) tmp[i] = p[i];
  return hn::Load(DF(), tmp);
}
HWY_INLINE void store_n(VF v, MF m, float* HWY_RESTRICT p, int n) {
  if constexpr (kMaskIsSafe) return hn::BlendedStore(v, m, DF(), p);
  HWY_ALIGN float tmp[kLanes];
  hn::Store(v, DF(), tmp);
  for (int i = 0; i < n; ++i) p[i] = tmp[i];
}
HWY_INLINE void copy_n(const float* HWY_RESTRICT src, int64_t n, float* HWY_RESTRICT dst) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::LoadU(DF(), src + i), DF(), dst + i);
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    const MF m = hn::FirstN(DF(), rest);
    store_n(load_n(m, src + i, rest), m, dst + i, rest);
  }
}
// to[0..n) += from[0..n)
HWY_INLINE void add_n(const float* HWY_RESTRICT from, int64_t n, float* HWY_RESTRICT to) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    const MF m = hn::FirstN(d, rest);
    store_n(hn::Add(load_n(m, to + i, rest), load_n(m, from + i, rest)), m, to + i, rest);
  }
}

// Two things GCC 12 gets wrong without being told (it has no way to say so in C++):
// in_register(v): v was loaded once for several uses; do not fold the load into each of them.
// opaque(i): do not carry loads over from the last iteration in place of loading again (a broadcast load is free).
HWY_INLINE VF in_register(VF v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
  asm("" : "+v"(v.raw));
#endif
  return v;
}
HWY_INLINE int64_t opaque(int64_t i) {
#if HWY_COMPILER_GCC
  asm("" : "+r"(i));
#endif
  return i;
}

// dst[4][w] (row distance ds) from four columns of kLanes rows, of which w count; m == FirstN(w). Blocks of four from
// rows 0, 4, 8 and 12 meet in one vector, so that shuffles inside blocks are all it takes.
template <bool kFull, class Row>
HWY_INLINE void transpose_four(Row row, int64_t w, MF m, float* HWY_RESTRICT dst, int64_t ds) {
  const DF d;
  const hn::Repartition<Pair, DF> d2;
  VF rows[4];
#pragma GCC unroll 4
  for (int64_t r = 0; r < 4; ++r) {
    rows[r] = hn::LoadDup128(d, row(r));
#pragma GCC unroll 4
    for (int64_t b = 4; b < kLanes; b += 4)
      rows[r] = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(b)), rows[r], hn::LoadDup128(d, row(b + r)));
  }
  const auto lo01 = hn::BitCast(d2, hn::InterleaveLower(d, rows[0], rows[1])),
             hi01 = hn::BitCast(d2, hn::InterleaveUpper(d, rows[0], rows[1])),
             lo23 = hn::BitCast(d2, hn::InterleaveLower(d, rows[2], rows[3])),
             hi23 = hn::BitCast(d2, hn::InterleaveUpper(d, rows[2], rows[3]));
  const VF columns[4] = {
      hn::BitCast(d, hn::InterleaveLower(d2, lo01, lo23)), hn::BitCast(d, hn::InterleaveUpper(d2, lo01, lo23)),
      hn::BitCast(d, hn::InterleaveLower(d2, hi01, hi23)), hn::BitCast(d, hn::InterleaveUpper(d2, hi01, hi23))};
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    if (kFull)
      hn::StoreU(columns[c], d, dst + c * ds);
    else
      store_n(columns[c], m, dst + c * ds, static_cast<int>(w));
  }
}

// dst[k][w] (row distance ds) from src[w][k] (row distance ld).
inline void transpose(const float* HWY_RESTRICT src, int64_t ld, int64_t w, int64_t k, float* HWY_RESTRICT dst,
                      int64_t ds) {
  constexpr int64_t kAhead = 64;  // four cache lines: more rows than a hardware prefetcher follows
  const int64_t full = w - w % kLanes;
  const int rest = static_cast<int>(w - full);
  const MF m = hn::FirstN(DF(), static_cast<size_t>(rest));
  const float* tail[kLanes];  // the last rows, the very last one again where there are none
  for (int64_t i = 0; i < kLanes; ++i) tail[i] = src + std::min(full + i, w - 1) * ld;
  for (int64_t p0 = 0; p0 < k;
       p0 += 16) {  // one cache line of each source row at a time: rows may collide in the cache
    const int64_t pe = std::min<int64_t>(k, p0 + 16), p4 = pe - pe % 4;
    if (p0 + kAhead < k)
      for (int64_t i = 0; i < w; ++i) hwy::Prefetch(src + i * ld + p0 + kAhead);
    for (int64_t i = 0; i < full; i += kLanes) {
      const float *s0 = src + i * ld, *s1 = s0 + ld, *s2 = s1 + ld, *s3 = s2 + ld;
      for (int64_t p = p0; p < p4; p += 4)
        transpose_four<true>(
            [&](int64_t r) HWY_ATTR {
              return (r % 4 == 0 ? s0 : r % 4 == 1 ? s1 : r % 4 == 2 ? s2 : s3) + r / 4 * 4 * ld + p;
            },
            kLanes, m, dst + p * ds + i, ds);
    }
    for (int64_t p = p0; p < p4 && rest; p += 4)
      transpose_four<false>([&](int64_t r) HWY_ATTR { return tail[r] + p; }, rest, m, dst + p * ds + full, ds);
    for (int64_t p = std::max(p0, p4); p < pe; ++p)
      for (int64_t i = 0; i < w; ++i) dst[p * ds + i] = src[i * ld + p];
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
