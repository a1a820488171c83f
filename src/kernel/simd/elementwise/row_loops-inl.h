// The one loop every elementwise row runs: full vectors, then the tail through padded buffers and the same code.
#if defined(MGE_SIMD_ROW_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_SIMD_ROW_LOOPS_INL_H_
#undef MGE_SIMD_ROW_LOOPS_INL_H_
#else
#define MGE_SIMD_ROW_LOOPS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "core/half.h"
#include "kernel/simd/elementwise/row_table.h"
#include "kernel/simd/vec-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

// How a body's vector type lies in memory.
template <class V>
struct Lane;
template <>
struct Lane<VF> {
  using Mem = float;
  static constexpr int64_t n = kLanes;
  static constexpr bool kStreams = true;
  static HWY_INLINE VF load(const float* p) { return VF(hn::LoadU(DF(), p)); }
  static HWY_INLINE void fill(float x, float* p) { store(VF(x), p); }
  static HWY_INLINE void store(VF v, float* p) { hn::StoreU(v.v, DF(), p); }
  static HWY_INLINE void stream(VF v, float* p) { hn::Stream(v.v, DF(), p); }
};
template <>
struct Lane<VI> {
  using Mem = int32_t;
  static constexpr int64_t n = kLanes;
  static constexpr bool kStreams = true;
  static HWY_INLINE VI load(const int32_t* p) { return VI(hn::LoadU(DI(), p)); }
  static HWY_INLINE void fill(int32_t x, int32_t* p) { store(VI(x), p); }
  static HWY_INLINE void store(VI v, int32_t* p) { hn::StoreU(v.v, DI(), p); }
  static HWY_INLINE void stream(VI v, int32_t* p) { hn::Stream(v.v, DI(), p); }
};
template <>
struct Lane<VB> {
  using Mem = uint8_t;
  static constexpr int64_t n = static_cast<int64_t>(hn::MaxLanes(DB()));
  static constexpr bool kStreams = false;
  static HWY_INLINE VB load(const uint8_t* p) { return {hn::LoadU(DB(), p)}; }
  static HWY_INLINE void fill(uint8_t x, uint8_t* p) { hn::StoreU(hn::Set(DB(), x), DB(), p); }
  static HWY_INLINE void store(VB v, uint8_t* p) { hn::StoreU(v.v, DB(), p); }
  static HWY_INLINE void stream(VB v, uint8_t* p) { store(v, p); }
};
template <>
struct Lane<VM> {  // results of comparisons: bytes that are 0 or 1
  using Mem = uint8_t;
  using D8 = hn::Rebind<uint8_t, DF>;  // as many bytes as float lanes
  static constexpr bool kStreams = false;
  static HWY_INLINE void store(VM m, uint8_t* p) {
    auto ones = hn::IfThenElseZero(hn::RebindMask(DI(), m.m), hn::Set(DI(), 1));
    hn::StoreU(hn::DemoteTo(D8(), ones), D8(), p);
  }
  static HWY_INLINE void stream(VM m, uint8_t* p) { store(m, p); }
};

// Of a vector shorter than 16 bytes Highway streams 16.
template <class D, class T>
HWY_INLINE void stream_half(D d, hn::Vec<D> v, T* p) {
  if constexpr (kLanes * sizeof(T) < 16)
    hn::StoreU(v, d, p);
  else
    hn::Stream(v, d, p);
}

// 16-bit floats, computed as float32.
struct F16Lane {
// Highway's emulation truncates, and loses inf and NaN.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_EMU128
  using Mem = uint16_t;
  static HWY_INLINE VF load(const uint16_t* p) {
    HWY_ALIGN float f[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) f[i] = half_to_float(p[i]);
    return VF(hn::Load(DF(), f));
  }
  static HWY_INLINE void store(VF v, uint16_t* p) {
    HWY_ALIGN float f[kLanes];
    hn::Store(v.v, DF(), f);
    for (int64_t i = 0; i < kLanes; ++i) p[i] = float_to_half(f[i]);
  }
  static HWY_INLINE void stream(VF v, uint16_t* p) { store(v, p); }
#else
  using Mem = hwy::float16_t;
  using D = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE VF load(const Mem* p) { return VF(hn::PromoteTo(DF(), hn::LoadU(D(), p))); }
  static HWY_INLINE void store(VF v, Mem* p) { hn::StoreU(hn::DemoteTo(D(), v.v), D(), p); }
  static HWY_INLINE void stream(VF v, Mem* p) { stream_half(D(), hn::DemoteTo(D(), v.v), p); }
#endif
  static constexpr int64_t n = kLanes;
  static constexpr bool kStreams = true;
  static HWY_INLINE void fill(Mem x, Mem* p) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(p + i, &x, sizeof x);
  }
};
struct BF16Lane {
  using Mem = uint16_t;
  using D = hn::Rebind<uint16_t, DI>;
  static constexpr int64_t n = kLanes;
  static constexpr bool kStreams = true;
  static HWY_INLINE VF load(const uint16_t* p) {
    return from_bits(shl<16>(VI(hn::PromoteTo(DI(), hn::LoadU(D(), p)))));
  }
  static HWY_INLINE void fill(uint16_t x, uint16_t* p) { std::fill_n(p, n, x); }
  static HWY_INLINE hn::Vec<D> rounded(VF v) {
    VI u = bits(v), kept = sar<16>(u);
    VI r = select(v == v, sar<16>(u + VI(0x7fff) + (kept & VI(1))), kept | VI(0x40));
    return hn::DemoteTo(D(), (r & VI(0xffff)).v);
  }
  static HWY_INLINE void store(VF v, uint16_t* p) { hn::StoreU(rounded(v), D(), p); }
  static HWY_INLINE void stream(VF v, uint16_t* p) { stream_half(D(), rounded(v), p); }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr bool kMaskedMemory = true;  // masked loads and stores of 4-byte lanes, which do not touch the lanes left out
#else
constexpr bool kMaskedMemory = false;
#endif
/// to[0..n) = from[0..n), fewer elements than a vector has.
template <class T>
HWY_INLINE void copy_tail(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n) {
  if constexpr (kMaskedMemory && sizeof(T) == 4) {
    const hn::CappedTag<T, 16> d;
    const auto m = hn::FirstN(d, static_cast<size_t>(n));
    hn::BlendedStore(hn::MaskedLoad(m, d, from), m, d, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}
/// A whole vector at `to` (aligned): n elements and zeros. Stored in one piece: a load of it need not wait for parts.
template <class T, int64_t N>
HWY_INLINE void pad_tail(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n) {
  if constexpr (kMaskedMemory && sizeof(T) == 4) {
    const hn::CappedTag<T, 16> d;
    hn::Store(hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, from), d, to);
  } else {
    for (int64_t i = 0; i < N; ++i) to[i] = i < n ? from[i] : T(0);
  }
}

// Bytes that inputs are fetched ahead of a streamed row: hardware stops at the end of each page.
constexpr int64_t kAhead = 4096;

// L says how inputs lie, To how results do: Lane of the body's type, or HalfLane.
template <class Op, class L, class To, size_t... k>
HWY_INLINE void run_row(const void* const* in, const int64_t* stride, void* out_v, int64_t n, bool streamed,
                        std::index_sequence<k...>) {
  using Mem = typename L::Mem;
  using Out = typename To::Mem;
  constexpr int64_t N = L::n;
  constexpr size_t kArity = sizeof...(k);
  HWY_ALIGN Mem splat[kArity][N];
  HWY_ALIGN Mem rest[kArity][N];
  HWY_ALIGN Out last[N];
  const Mem* p[kArity] = {static_cast<const Mem*>(in[k])...};
  Out* out = static_cast<Out*>(out_v);
  int64_t step[kArity];
  auto prepare = [&](size_t j) HWY_ATTR {
    step[j] = stride[j] * N;
    if (stride[j] == 0) {
      L::fill(*p[j], splat[j]);
      p[j] = splat[j];
    }
  };
  (prepare(k), ...);
  int64_t full = n / N, tail = n % N;
  Out* const tail_out = out + full * N;
  for (bool more = tail != 0;;) {
    for (int64_t i = 0; i < full; ++i) {
      const auto y = Op::eval(L::load(p[k])...);
      if (To::kStreams && streamed) {
        (__builtin_prefetch(reinterpret_cast<const char*>(p[k]) + kAhead), ...);
        To::stream(y, out);
      } else {
        To::store(y, out);
      }
      ((p[k] += step[k]), ...);
      out += N;
    }
    if (!more) break;
    // The last, partial vector: padded with zeros, whose results are dropped.
    more = false;
    streamed = false;
    full = 1;
    auto pad = [&](size_t j) HWY_ATTR {
      if (step[j] == 0) return;
      pad_tail<Mem, N>(rest[j], p[j], tail);
      p[j] = rest[j];
    };
    (pad(k), ...);
    out = last;
  }
  if (tail) copy_tail(tail_out, last, tail);
}

template <class Op, class L, class To>
HWY_NOINLINE void run_row(const void* const* in, const int64_t* stride, void* out, int64_t n, bool streamed) {
  run_row<Op, L, To>(in, stride, out, n, streamed, std::make_index_sequence<Op::arity>());
}
template <class Op, class L, class To>
simd::RowPair row_pair() {
  simd::RowPair r;
  r.row = [](const void* const* in, const int64_t* stride, void* out, int64_t n) {
    run_row<Op, L, To>(in, stride, out, n, false);
  };
  if (To::kStreams)
    r.streamed = [](const void* const* in, const int64_t* stride, void* out, int64_t n) {
      run_row<Op, L, To>(in, stride, out, n, true);
    };
  return r;
}

// Rows for float, and for int32 where the body is plain arithmetic.
template <class Op, bool kInt>
simd::OpRows rows_of() {
  simd::OpRows r;
  r.f32 = row_pair<Op, Lane<VF>, std::conditional_t<Op::bool_out, Lane<VM>, Lane<VF>>>();
  if constexpr (kInt && dtype_in_build(DType::I32))
    r.i32 = row_pair<Op, Lane<VI>, std::conditional_t<Op::bool_out, Lane<VM>, Lane<VI>>>();
  return r;
}
// Those of 16-bit floats as well.
template <class Op>
void set_half_rows_of(simd::RowTable& t) {
  if constexpr (vectors_in_build(Op::name) && (dtype_in_build(DType::F16) || dtype_in_build(DType::BF16)))
    t.set(Op::name, {.f16 = row_pair<Op, F16Lane, F16Lane>(), .bf16 = row_pair<Op, BF16Lane, BF16Lane>()});
}
template <class... Ops>
void set_half_rows(simd::RowTable& t, OpList<Ops...>) {
  (set_half_rows_of<Ops>(t), ...);
}
template <bool kInt, class Op>
void set_rows_of(simd::RowTable& t) {
  if constexpr (vectors_in_build(Op::name)) t.set(Op::name, rows_of<Op, kInt>());
}
template <bool kInt, class... Ops>
void set_rows(simd::RowTable& t, OpList<Ops...>) {
  (set_rows_of<kInt, Ops>(t), ...);
}

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
