// The one loop every elementwise row runs: full vectors, then the tail through padded buffers and the same code.
#if defined(MGE_SIMD_ROW_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MGE_SIMD_ROW_LOOPS_INL_H_
#undef MGE_SIMD_ROW_LOOPS_INL_H_
#else
#define MGE_SIMD_ROW_LOOPS_INL_H_
#endif

#include <utility>

#include "kernel/simd/row_table.h"
#include "kernel/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

// How a body's vector type lies in memory.
template <class V>
struct Lane;
template <>
struct Lane<VF> {
  using Mem = float;
  static constexpr int64_t n = kLanes;
  static HWY_INLINE VF load(const float* p) { return VF(hn::LoadU(DF(), p)); }
  static HWY_INLINE VF splat(float x) { return VF(x); }
  static HWY_INLINE void store(VF v, float* p) { hn::StoreU(v.v, DF(), p); }
};
template <>
struct Lane<VI> {
  using Mem = int32_t;
  static constexpr int64_t n = kLanes;
  static HWY_INLINE VI load(const int32_t* p) { return VI(hn::LoadU(DI(), p)); }
  static HWY_INLINE VI splat(int32_t x) { return VI(x); }
  static HWY_INLINE void store(VI v, int32_t* p) { hn::StoreU(v.v, DI(), p); }
};
template <>
struct Lane<VB> {
  using Mem = uint8_t;
  static constexpr int64_t n = static_cast<int64_t>(hn::MaxLanes(DB()));
  static HWY_INLINE VB load(const uint8_t* p) { return {hn::LoadU(DB(), p)}; }
  static HWY_INLINE VB splat(uint8_t x) { return {hn::Set(DB(), x)}; }
  static HWY_INLINE void store(VB v, uint8_t* p) { hn::StoreU(v.v, DB(), p); }
};
using D8 = hn::Rebind<uint8_t, DF>;  // as many bytes as float lanes
HWY_INLINE void store(VM m, uint8_t* p) {
  auto ones = hn::IfThenElseZero(hn::RebindMask(DI(), m.m), hn::Set(DI(), 1));
  hn::StoreU(hn::DemoteTo(D8(), ones), D8(), p);
}
HWY_INLINE void store(VF v, float* p) { Lane<VF>::store(v, p); }
HWY_INLINE void store(VI v, int32_t* p) { Lane<VI>::store(v, p); }
HWY_INLINE void store(VB v, uint8_t* p) { Lane<VB>::store(v, p); }

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

template <class Op, class V, class Out, size_t... k>
HWY_INLINE void run_row(const void* const* in, const int64_t* stride, void* out_v, int64_t n,
                        std::index_sequence<k...>) {
  using L = Lane<V>;
  using Mem = typename L::Mem;
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
      L::store(L::splat(*p[j]), splat[j]);
      p[j] = splat[j];
    }
  };
  (prepare(k), ...);
  int64_t full = n / N, tail = n % N;
  Out* const tail_out = out + full * N;
  for (bool more = tail != 0;;) {
    for (int64_t i = 0; i < full; ++i) {
      store(Op::eval(L::load(p[k])...), out);
      ((p[k] += step[k]), ...);
      out += N;
    }
    if (!more) break;
    // The last, partial vector: padded with zeros, whose results are dropped.
    more = false;
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

template <class Op, class V, class Out>
void row(const void* const* in, const int64_t* stride, void* out, int64_t n) {
  run_row<Op, V, Out>(in, stride, out, n, std::make_index_sequence<Op::arity>());
}

// Rows for float, and for int32 where the body is plain arithmetic.
template <class Op, bool kInt>
simd::OpRows rows_of() {
  simd::OpRows r;
  using F = std::conditional_t<Op::bool_out, uint8_t, float>;
  r.f32 = row<Op, VF, F>;
  if constexpr (kInt) r.i32 = row<Op, VI, std::conditional_t<Op::bool_out, uint8_t, int32_t>>;
  return r;
}
template <bool kInt, class... Ops>
void set_rows(simd::RowTable& t, OpList<Ops...>) {
  (t.set(Ops::name, rows_of<Ops, kInt>()), ...);
}

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
