// Rows that move more than they compute: bool logic, where, typecvt.
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/elementwise_move.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

// ---- where: T is an unsigned type of the element's size ----

template <class T>
HWY_INLINE auto condition(const uint8_t* p) {
  const hn::ScalableTag<T> d;
  auto bytes = hn::LoadU(hn::Rebind<uint8_t, decltype(d)>(), p);
  if constexpr (sizeof(T) == 1)
    return hn::Ne(bytes, hn::Zero(d));
  else
    return hn::Ne(hn::PromoteTo(d, bytes), hn::Zero(d));
}
template <class T>
void where_row(const void* const* in, const int64_t* stride, void* out_v, int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(d));
  HWY_ALIGN uint8_t cond[N] = {};
  HWY_ALIGN T value[2][N] = {}, last[N];
  auto* c = static_cast<const uint8_t*>(in[0]);
  const T* p[2] = {static_cast<const T*>(in[1]), static_cast<const T*>(in[2])};
  T* out = static_cast<T*>(out_v);
  const int64_t c_step = stride[0] * N, step[2] = {stride[1] * N, stride[2] * N};
  if (!c_step) {
    for (auto& b : cond) b = *c;
    c = cond;
  }
  for (int k = 0; k < 2; ++k) {
    if (step[k]) continue;
    hn::Store(hn::Set(d, *p[k]), d, value[k]);
    p[k] = value[k];
  }
  int64_t full = n / N, tail = n % N;
  T* const tail_out = out + full * N;
  for (bool more = tail != 0;;) {
    for (int64_t i = 0; i < full; ++i) {
      hn::StoreU(hn::IfThenElse(condition<T>(c), hn::LoadU(d, p[0]), hn::LoadU(d, p[1])), d, out);
      c += c_step;
      p[0] += step[0];
      p[1] += step[1];
      out += N;
    }
    if (!more) break;
    more = false;
    full = 1;
    if (c_step) {
      std::memcpy(cond, c, static_cast<size_t>(tail));
      c = cond;
    }
    for (int k = 0; k < 2; ++k) {
      if (!step[k]) continue;
      copy_tail(value[k], p[k], tail);
      p[k] = value[k];
    }
    out = last;
  }
  if (tail) copy_tail(tail_out, last, tail);
}

// ---- typecvt ----

// A vector of kLanes elements of a dtype, as floats or as ints, whichever holds all its values.
template <DType t>
struct Element;
template <>
struct Element<DType::F32> {
  using Mem = float;
  static HWY_INLINE VF load(const float* p) { return VF(hn::LoadU(DF(), p)); }
  static HWY_INLINE void put(VF v, float* p) { hn::StoreU(v.v, DF(), p); }
};
template <>
struct Element<DType::F16> : F16Lane {
  static HWY_INLINE void put(VF v, Mem* p) { store(v, p); }
};
template <>
struct Element<DType::BF16> : BF16Lane {
  static HWY_INLINE void put(VF v, Mem* p) { store(v, p); }
};
template <>
struct Element<DType::I32> {
  using Mem = int32_t;
  static HWY_INLINE VI load(const int32_t* p) { return VI(hn::LoadU(DI(), p)); }
  static HWY_INLINE void put(VI v, int32_t* p) { hn::StoreU(v.v, DI(), p); }
};
template <class T, int32_t kMask>
struct Narrow {
  using Mem = T;
  using D = hn::Rebind<T, DI>;
  using U = hn::Rebind<std::make_unsigned_t<T>, DI>;
  static HWY_INLINE VI load(const T* p) { return VI(hn::PromoteTo(DI(), hn::LoadU(D(), p))); }
  static HWY_INLINE void put(VI v, T* p) { hn::StoreU(hn::BitCast(D(), hn::DemoteTo(U(), (v & VI(kMask)).v)), D(), p); }
};
template <>
struct Element<DType::U8> : Narrow<uint8_t, 0xff> {};
template <>
struct Element<DType::I8> : Narrow<int8_t, 0xff> {};
template <>
struct Element<DType::U16> : Narrow<uint16_t, 0xffff> {};
template <>
struct Element<DType::I16> : Narrow<int16_t, 0xffff> {};
template <>
struct Element<DType::Bool> : Narrow<uint8_t, 0xff> {};

HWY_INLINE VF as_float(VF v) { return v; }
HWY_INLINE VF as_float(VI v) { return to_float(v); }
HWY_INLINE VI as_int(VI v) { return v; }
HWY_INLINE VI as_int(VF v) {  // truncates, saturates, NaN gives 0
  auto i = hn::ConvertTo(DI(), v.v);
  i = hn::IfThenElse(hn::RebindMask(DI(), hn::Ge(v.v, hn::Set(DF(), 0x1p31f))), hn::Set(DI(), INT32_MAX), i);
  return VI(hn::IfThenElseZero(hn::RebindMask(DI(), hn::Eq(v.v, v.v)), i));
}
template <DType to, class V, class Mem>
HWY_INLINE void put_as(V v, Mem* p) {
  if constexpr (to == DType::Bool)
    Lane<VM>::store(v != V(0.f), p);
  else if constexpr (to == DType::F32 || to == DType::F16 || to == DType::BF16)
    Element<to>::put(as_float(v), p);
  else
    Element<to>::put(as_int(v), p);
}

template <DType from, DType to>
void cast_row(const void* const* in, const int64_t* stride, void* out_v, int64_t n) {
  using From = typename Element<from>::Mem;
  using To = typename Element<to>::Mem;
  constexpr int64_t N = kLanes;
  auto* p = static_cast<const From*>(in[0]);
  auto* out = static_cast<To*>(out_v);
  HWY_ALIGN From rest[N];
  HWY_ALIGN To last[N];
  const int64_t step = stride[0] * N;
  if (!step) {
    for (auto& e : rest) std::memcpy(&e, p, sizeof(From));
    p = rest;
  }
  int64_t full = n / N, tail = n % N;
  To* const tail_out = out + full * N;
  for (bool more = tail != 0;;) {
    for (int64_t i = 0; i < full; ++i) {
      put_as<to>(Element<from>::load(p), out);
      p += step;
      out += N;
    }
    if (!more) break;
    more = false;
    full = 1;
    if (step) {
      std::memset(rest, 0, sizeof rest);
      std::memcpy(rest, p, static_cast<size_t>(tail) * sizeof(From));
      p = rest;
    }
    out = last;
  }
  if (tail) std::memcpy(tail_out, last, static_cast<size_t>(tail) * sizeof(To));
}

template <DType from, DType to>
void set_cast(simd::RowTable& t) {
  if constexpr (dtype_in_build(from) && dtype_in_build(to))
    t.cast[static_cast<int>(from)][static_cast<int>(to)] = cast_row<from, to>;
}
template <DType from, DType... to>
void set_casts_from(simd::RowTable& t) {
  (set_cast<from, to>(t), ...);
}
template <DType... t>
struct Types {};
template <DType... t>
void set_casts(simd::RowTable& table, Types<t...>) {
  (set_casts_from<t, t...>(table), ...);
}

void fill_move(simd::RowTable& t) {
  auto logic = [&]<class... Ops>(OpList<Ops...>) {
    (
        [&] {
          if constexpr (vectors_in_build(Ops::name)) t.set(Ops::name, {.b8 = row_pair<Ops, Lane<VB>, Lane<VB>>()});
        }(),
        ...);
  };
  logic(BoolOps());
  if constexpr (vectors_in_build("where")) {
    t.where[0] = where_row<uint8_t>;
    t.where[1] = where_row<uint16_t>;
    t.where[2] = where_row<uint32_t>;
  }
  using enum DType;
  set_casts(t, Types<Bool, U8, I8, I32, F16, F32>());
  set_casts(t, Types<BF16, F32>());
  set_casts(t, Types<U16, I16, I32, F32>());
}

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::body {
HWY_EXPORT(fill_move);
static void fill(simd::RowTable& t) { HWY_DYNAMIC_DISPATCH(fill_move)(t); }
}  // namespace mge::body
void mge::simd::fill_move_rows(RowTable& t) { body::fill(t); }
#endif
