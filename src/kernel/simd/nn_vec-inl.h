// Vectors of float32 for the kernels of neural-network ops, once per instruction set: tails, sums, rows.
#if defined(MGE_NN_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_NN_VEC_INL_H_
#undef MGE_NN_VEC_INL_H_
#else
#define MGE_NN_VEC_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "base/cost.h"
#include "kernel/simd/exact-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr bool kMaskIsSafe = true;  // masked-out memory is not touched
#else
constexpr bool kMaskIsSafe = false;
#endif

HWY_INLINE VF set(float v) { return hn::Set(DF(), v); }

// The first n lanes from p, zeros after.
HWY_INLINE VF load_n(const float* p, int n) {
  if (n == kLanes) return hn::LoadU(DF(), p);
  if constexpr (kMaskIsSafe) return hn::MaskedLoad(hn::FirstN(DF(), static_cast<size_t>(n)), DF(), p);
  HWY_ALIGN float tmp[kLanes] = {};
  for (int i = 0; i < n; ++i) tmp[i] = p[i];
  return hn::Load(DF(), tmp);
}
HWY_INLINE void store_n(VF v, float* p, int n) {
  if (n == kLanes) return hn::StoreU(v, DF(), p);
  if constexpr (kMaskIsSafe) return hn::BlendedStore(v, hn::FirstN(DF(), static_cast<size_t>(n)), DF(), p);
  HWY_ALIGN float tmp[kLanes];
  hn::Store(v, DF(), tmp);
  for (int i = 0; i < n; ++i) p[i] = tmp[i];
}

// f(i, lanes) over [0,n): whole vectors with a constant count, then the tail.
template <class F>
HWY_INLINE void each_vector(int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

// y[i ..] = f(i) for a row of whole cache lines, past the cache (non-temporal stores).
template <class F>
HWY_INLINE void stream_row(float* y, int64_t n, F f) {
  for (int64_t i = 0; i < n; i += kLanes) hn::Stream(f(i), DF(), y + i);
}

// Sum of term(i, lanes) over [0,n); lanes past the end do not count. The order depends on n alone.
template <class F>
HWY_INLINE float sum_of(int64_t n, F term) {
  const DF d;
  VF acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) acc[k] = hn::Add(acc[k], term(i + k * kLanes, kLanes));
  for (; i + kLanes <= n; i += kLanes) acc[0] = hn::Add(acc[0], term(i, kLanes));
  if (i < n) {
    int rest = static_cast<int>(n - i);
    acc[1] = hn::Add(acc[1], hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(rest)), term(i, rest)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(acc[0], acc[1]), hn::Add(acc[2], acc[3]))));
}

// Items per thread so that one gets about 16k floats of work.
inline int64_t grain_for(int64_t floats_per_item) { return value_grain(floats_per_item); }

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
