#include "kernel/simd/quant/product_raw.h"

#include <cstring>

#include "kernel/simd/targets.h"
#include "op/quant/numerics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/quant/product_raw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/exact-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::CappedTag<int32_t, 16>;
using D16 = hn::RepartitionToNarrow<D32>;
using DF = hn::RebindToFloat<D32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D32()));
constexpr int kVectors = 2, kRows = 6;

int64_t columns_of_panel() { return kVectors * kLanes; }

// R rows of a against one panel. Unrolled by hand: -O2, which Lite has, keeps loops and with them the sums in memory.
template <int R>
HWY_INLINE void tile(const int16_t* HWY_RESTRICT a, int64_t kp, const int16_t* HWY_RESTRICT b, int32_t* HWY_RESTRICT c,
                     int64_t ldc) {
  const D32 d32;
  const D16 d16;
  using V = hn::Vec<D32>;
  V even[R][kVectors], odd[R][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) even[r][v] = odd[r][v] = hn::Zero(d32);
  for (int64_t k = 0; k < kp; k += 2, b += 2 * kVectors * kLanes) {
    hn::Vec<D16> col[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) col[v] = hn::LoadU(d16, b + v * 2 * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      int32_t pair;
      __builtin_memcpy(&pair, a + r * kp + k, sizeof pair);
      const hn::Vec<D16> row = hn::BitCast(d16, hn::Set(d32, pair));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        even[r][v] = hn::ReorderWidenMulAccumulate(d32, row, col[v], even[r][v], odd[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(hn::RearrangeToOddPlusEven(even[r][v], odd[r][v]), d32, c + r * ldc + v * kLanes);
}

void product(const int16_t* a, int64_t rows, int64_t kp, const int16_t* b, int64_t columns, int32_t* c, int64_t ldc) {
  using Tile = void (*)(const int16_t*, int64_t, const int16_t*, int32_t*, int64_t);
  static constexpr Tile kTiles[] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>};
  static_assert(kRows == 6);
  for (int64_t j = 0; j < columns; j += kVectors * kLanes) {
    const int16_t* panel = b + j * kp;
    int64_t i = 0;
    for (; i + kRows <= rows; i += kRows) tile<kRows>(a + i * kp, kp, panel, c + i * ldc + j, ldc);
    if (i < rows) kTiles[rows - i](a + i * kp, kp, panel, c + i * ldc + j, ldc);
  }
}

void dots_of_bytes(const int16_t* a, const int8_t* b, int64_t rows, int64_t k, int32_t* sums) {
  const D32 d32;
  const D16 d16;
  const hn::Rebind<int8_t, D16> d8;
  constexpr int64_t kStep = 2 * kLanes;
  for (int64_t j = 0; j < rows; ++j, b += k) {
    auto even = hn::Zero(d32), odd = even, even2 = even, odd2 = even;
    int64_t i = 0;
    for (; i + 2 * kStep <= k; i += 2 * kStep) {
      even = hn::ReorderWidenMulAccumulate(d32, hn::LoadU(d16, a + i), hn::PromoteTo(d16, hn::LoadU(d8, b + i)), even,
                                           odd);
      even2 = hn::ReorderWidenMulAccumulate(d32, hn::LoadU(d16, a + i + kStep),
                                            hn::PromoteTo(d16, hn::LoadU(d8, b + i + kStep)), even2, odd2);
    }
    int32_t sum = hn::GetLane(hn::SumOfLanes(d32, hn::Add(hn::Add(even, odd), hn::Add(even2, odd2))));
    for (; i < k; ++i) sum += a[i] * b[i];
    sums[j] = sum;
  }
}

// The lower and upper half of x, each times w, added to sums. NOTE(perf): two instructions for 8 products on ARM, whose
// multiply-add widens.
HWY_INLINE void add_products(hn::Vec<D16> x, int16_t w, hn::Vec<D32> (&sums)[2]) {
#if HWY_ARCH_ARM_A64
  sums[0].raw = vmlal_n_s16(sums[0].raw, vget_low_s16(x.raw), w);
  sums[1].raw = vmlal_high_n_s16(sums[1].raw, x.raw, w);
#else
  const D32 d32;
  const hn::Half<D16> half;
  const auto f = hn::Set(d32, w);
  sums[0] = hn::Add(sums[0], hn::Mul(hn::PromoteTo(d32, hn::LowerHalf(half, x)), f));
  sums[1] = hn::Add(sums[1], hn::Mul(hn::PromoteTo(d32, hn::UpperHalf(half, x)), f));
#endif
}

// N vectors of x at a time.
template <int N>
HWY_INLINE void tap_tile(const int16_t* HWY_RESTRICT x, const int64_t* HWY_RESTRICT from, const int16_t* HWY_RESTRICT w,
                         int64_t taps, int32_t* HWY_RESTRICT to) {
  const D32 d32;
  hn::Vec<D32> acc[N][2];
#pragma GCC unroll 2
  for (auto& pair : acc) pair[0] = pair[1] = hn::Zero(d32);
  for (int64_t t = 0; t < taps; ++t)
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) add_products(hn::LoadU(D16(), x + from[t] + v * 2 * kLanes), w[t], acc[v]);
#pragma GCC unroll 2
  for (int v = 0; v < N; ++v)
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) hn::StoreU(acc[v][i], d32, to + (2 * v + i) * kLanes);
}
void sums_of_taps(const int16_t* x, const int64_t* from, const int16_t* w, int64_t taps, int64_t n, int32_t* sums) {
  int64_t i = 0;
  for (; i + 2 * kLanes < n; i += 4 * kLanes) tap_tile<2>(x + i, from, w, taps, sums + i);
  if (i < n) tap_tile<1>(x + i, from, w, taps, sums + i);
}

// Real values as integers of a dtype of 8 bits: the quotient by the scale, rounded to float32, then to an integer,
// halves away from zero.
struct Rounding {
  hn::Vec<DF> out, inverse, sure, lo, hi;
  hn::Vec<D32> zero, from_magic;
  Rounding(float scale, int32_t z, QuantRange range)
      : out(hn::Set(DF(), scale)),
        inverse(hn::Set(DF(), 1.0f / scale)),
        sure(hn::Set(DF(), scale > 0x1p-100f && scale < 0x1p100f ? 0.5f - 0x1p-13f : -1.0f)),
        // Clipped before the zero point is added: both are exact then, as the formula's are in double.
        lo(hn::Set(DF(), static_cast<float>(range.lo - z))),
        hi(hn::Set(DF(), static_cast<float>(range.hi - z))),
        zero(hn::Set(D32(), z)),
        from_magic(hn::Set(D32(), z - 0x4b400000)) {}
  // N vectors of values. NOTE(perf): a division and halves away from zero take as long as all the rest. The product
  // with the inverse differs from the quotient by less than 2^-22 of it, each of three roundings adds 2^-24: by 2^-13
  // below 512, and beyond both are clipped. Where it is farther from every half, both have the same nearest integer.
  // Else the quotients decide.
  template <int N>
  HWY_INLINE void operator()(const hn::Vec<DF> (&v)[N], hn::Vec<D32> (&q)[N]) const {
    const DF df;
    const auto magic = hn::Set(df, 0x1.8p23f);  // the sum with it has no bits for a fraction
    hn::Mask<DF> all = hn::FirstN(df, kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const auto z = hn::Min(hn::Max(hn::Mul(v[i], inverse), lo), hi);
      const auto sum = hn::Add(z, magic);
      all = hn::And(all, hn::Lt(hn::Abs(hn::Sub(z, hn::Sub(sum, magic))), sure));
      q[i] = hn::Add(hn::BitCast(D32(), sum), from_magic);
    }
    if (HWY_LIKELY(hn::AllTrue(df, all))) return;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) q[i] = of_quotient(hn::Div(v[i], out));
  }

 private:
  // With the float before a half no sum below a half reaches the next integer, and the sum of two that are a half or
  // more is rounded to it. Beyond 2^22, where that ends, everything is clipped.
  HWY_INLINE hn::Vec<D32> of_quotient(hn::Vec<DF> z) const {
    const auto q = hn::Trunc(hn::Add(z, hn::CopySign(hn::Set(DF(), 0x1.fffffep-2f), z)));
    const auto clipped = hn::IfThenElse(hn::Ge(q, lo), hn::Min(q, hi), lo);  // NaN gives the least
    return hn::Add(hn::ConvertTo(D32(), clipped), zero);
  }
};

constexpr int kTogether = 4;
// Stores n values(i), i a multiple of the vector, as bytes; a rest is not stored. Returns how many are.
template <class Q, class F>
HWY_INLINE int64_t store_rounded(const Rounding& round, int64_t n, Q* HWY_RESTRICT y, F values) {
  const hn::Rebind<Q, D32> d8;
  int64_t i = 0;
  for (; i + kTogether * kLanes <= n; i += kTogether * kLanes) {
    const hn::Vec<DF> v[] = {values(i), values(i + kLanes), values(i + 2 * kLanes), values(i + 3 * kLanes)};
    hn::Vec<D32> q[kTogether];
    round(v, q);
#pragma GCC unroll 4
    for (int j = 0; j < kTogether; ++j) hn::StoreU(hn::DemoteTo(d8, q[j]), d8, y + i + j * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) {
    const hn::Vec<DF> v[] = {values(i)};
    hn::Vec<D32> q[1];
    round(v, q);
    hn::StoreU(hn::DemoteTo(d8, q[0]), d8, y + i);
  }
  return i;
}

template <class Q>
void quantized(const float* HWY_RESTRICT x, int64_t n, float scale, int32_t zero, QuantRange range, Q* HWY_RESTRICT y) {
  const Rounding round(scale, zero, range);
  int64_t i = store_rounded(round, n, y, [&](int64_t at) HWY_ATTR { return hn::LoadU(DF(), x + at); });
  for (; i < n; ++i) y[i] = static_cast<Q>(quant::quantise(x[i], scale, zero, range));
}
void quantized_i8(const float* x, int64_t n, float s, int32_t z, QuantRange r, int8_t* y) {
  quantized(x, n, s, z, r, y);
}
void quantized_u8(const float* x, int64_t n, float s, int32_t z, QuantRange r, uint8_t* y) {
  quantized(x, n, s, z, r, y);
}

template <class Q>
void real(const Q* HWY_RESTRICT x, int64_t n, float scale, int32_t zero, float* HWY_RESTRICT y) {
  const D32 d32;
  const hn::Rebind<Q, D32> d8;
  const auto z = hn::Set(d32, zero);
  const auto s = hn::Set(DF(), scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::Mul(hn::ConvertTo(DF(), hn::Sub(hn::PromoteTo(d32, hn::LoadU(d8, x + i)), z)), s), DF(), y + i);
  for (; i < n; ++i) y[i] = quant::dequantise(x[i], zero, scale);
}
void real_i8(const int8_t* x, int64_t n, float s, int32_t z, float* y) { real(x, n, s, z, y); }
void real_u8(const uint8_t* x, int64_t n, float s, int32_t z, float* y) { real(x, n, s, z, y); }

// kBias, kScale: one for each element.
template <bool kBias, bool kScale, class Q>
void rows_of_bytes(const ToBytes& to, const SumRow& r, Q* HWY_RESTRICT y) {
  const D32 d32;
  const DF df;
  const Rounding round(to.scale, to.zero, to.range);
  const auto least = hn::Set(df, to.relu ? 0.f : -__builtin_inff());
  const auto bias = hn::Set(d32, r.bias && !kBias ? r.bias[0] : 0);
  const auto scale = hn::Set(df, r.scale[0]);
  auto store = [&](const int32_t* sums, int64_t n, const int32_t* biases, const float* scales, Q* out) HWY_ATTR {
    return store_rounded(round, n, out, [&](int64_t at) HWY_ATTR {
      const auto b = kBias ? hn::LoadU(d32, biases + at) : bias;
      const auto s = kScale ? hn::LoadU(df, scales + at) : scale;
      return hn::Max(hn::Mul(hn::ConvertTo(df, hn::Add(hn::LoadU(d32, sums + at), b)), s), least);
    });
  };
  const int32_t* sums = r.sums;
  for (int64_t row = 0; row < r.rows; ++row, sums += r.n, y += r.n) {
    const int64_t i = store(sums, r.n, r.bias, r.scale, y);
    if (i == r.n) continue;
    // The rest as a vector: short rows are nothing else.
    const auto rest = static_cast<size_t>(r.n - i);
    HWY_ALIGN int32_t some_sums[kLanes] = {}, some_biases[kLanes] = {};
    HWY_ALIGN float some_scales[kLanes] = {};
    Q some[kLanes];
    std::memcpy(some_sums, sums + i, rest * sizeof(int32_t));
    if (kBias) std::memcpy(some_biases, r.bias + i, rest * sizeof(int32_t));
    if (kScale) std::memcpy(some_scales, r.scale + i, rest * sizeof(float));
    store(some_sums, kLanes, some_biases, some_scales, some);
    std::memcpy(y + i, some, rest);
  }
}
template <class Q>
void bytes(const ToBytes& to, const SumRow& r, Q* y) {
  if (r.bias && r.bias_step)
    r.scale_step ? rows_of_bytes<true, true>(to, r, y) : rows_of_bytes<true, false>(to, r, y);
  else
    r.scale_step ? rows_of_bytes<false, true>(to, r, y) : rows_of_bytes<false, false>(to, r, y);
}
void bytes_i8(const ToBytes& to, const SumRow& r, int8_t* y) { bytes(to, r, y); }
void bytes_u8(const ToBytes& to, const SumRow& r, uint8_t* y) { bytes(to, r, y); }

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {

HWY_EXPORT(columns_of_panel);
HWY_EXPORT(product);
HWY_EXPORT(sums_of_taps);
HWY_EXPORT(dots_of_bytes);
HWY_EXPORT(bytes_i8);
HWY_EXPORT(bytes_u8);
HWY_EXPORT(quantized_i8);
HWY_EXPORT(quantized_u8);
HWY_EXPORT(real_i8);
HWY_EXPORT(real_u8);

int64_t igemm_columns() { return HWY_DYNAMIC_DISPATCH(columns_of_panel)(); }
void igemm(const int16_t* a, int64_t rows, int64_t kp, const int16_t* b, int64_t columns, int32_t* c, int64_t ldc) {
  HWY_DYNAMIC_DISPATCH(product)(a, rows, kp, b, columns, c, ldc);
}
void byte_dots(const int16_t* a, const int8_t* b, int64_t rows, int64_t k, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(dots_of_bytes)(a, b, rows, k, sums);
}
void tap_sums(const int16_t* x, const int64_t* from, const int16_t* w, int64_t taps, int64_t n, int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(sums_of_taps)(x, from, w, taps, n, sums);
}
void to_bytes(const ToBytes& to, const SumRow& r, int8_t* y) { HWY_DYNAMIC_DISPATCH(bytes_i8)(to, r, y); }
void to_bytes(const ToBytes& to, const SumRow& r, uint8_t* y) { HWY_DYNAMIC_DISPATCH(bytes_u8)(to, r, y); }
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, int8_t* y) {
  HWY_DYNAMIC_DISPATCH(quantized_i8)(x, n, scale, zero, range, y);
}
void quantize(const float* x, int64_t n, float scale, int32_t zero, QuantRange range, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(quantized_u8)(x, n, scale, zero, range, y);
}
void dequantize(const int8_t* x, int64_t n, float scale, int32_t zero, float* y) {
  HWY_DYNAMIC_DISPATCH(real_i8)(x, n, scale, zero, y);
}
void dequantize(const uint8_t* x, int64_t n, float scale, int32_t zero, float* y) {
  HWY_DYNAMIC_DISPATCH(real_u8)(x, n, scale, zero, y);
}

}  // namespace mge::simd
#endif
