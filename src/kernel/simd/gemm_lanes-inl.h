// Vectors of float with safe tails, and a transpose: what the raw kernels share, once per instruction set.
#if defined(MGE_GEMM_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_GEMM_LANES_INL_H_
#undef MGE_GEMM_LANES_INL_H_
#else
#define MGE_GEMM_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using MF = hn::Mask<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
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

// dst[k][w] (row distance ds) from src[w][k] (row distance ld).
inline void transpose(const float* HWY_RESTRICT src, int64_t ld, int64_t w, int64_t k, float* HWY_RESTRICT dst,
                      int64_t ds) {
  const hn::FixedTag<float, 4> d4;
  const hn::Repartition<double, decltype(d4)> d2;
  for (int64_t p0 = 0; p0 < k;
       p0 += 16) {  // one cache line of each source row at a time: rows may collide in the cache
    const int64_t pe = std::min<int64_t>(k, p0 + 16);
    int64_t i = 0;
    for (; i + 4 <= w; i += 4) {
      const float* s = src + i * ld;
      int64_t p = p0;
      for (; p + 4 <= pe; p += 4) {
        const auto r0 = hn::LoadU(d4, s + p), r1 = hn::LoadU(d4, s + ld + p);
        const auto r2 = hn::LoadU(d4, s + 2 * ld + p), r3 = hn::LoadU(d4, s + 3 * ld + p);
        const auto lo01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1)),
                   hi01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
        const auto lo23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3)),
                   hi23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
        float* o = dst + p * ds + i;
        hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, lo01, lo23)), d4, o);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, lo01, lo23)), d4, o + ds);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, hi01, hi23)), d4, o + 2 * ds);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, hi01, hi23)), d4, o + 3 * ds);
      }
      for (; p < pe; ++p)
        for (int64_t t = 0; t < 4; ++t) dst[p * ds + i + t] = s[t * ld + p];
    }
    for (; i < w; ++i)
      for (int64_t p = p0; p < pe; ++p) dst[p * ds + i] = src[i * ld + p];
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
