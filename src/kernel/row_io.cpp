#include "kernel/row_io.h"

#include <cstring>

#include "base/error.h"
#include "core/half.h"

namespace mge {
namespace {

template <class C, class T>
void load(const void* src, int64_t stride, void* dst, int64_t n) {
  auto* s = static_cast<const T*>(src);
  auto* d = static_cast<C*>(dst);
  for (int64_t i = 0; i < n; ++i) d[i] = static_cast<C>(s[i * stride]);
}
template <class C, class T>
void store(void* dst, int64_t stride, const void* src, int64_t n) {
  auto* s = static_cast<const C*>(src);
  auto* d = static_cast<T*>(dst);
  for (int64_t i = 0; i < n; ++i) d[i * stride] = static_cast<T>(s[i]);
}
// Memory from outside may hold other bytes than 0 and 1, which C++ must not read as bool.
void load_bool(const void* src, int64_t stride, void* dst, int64_t n) {
  auto* s = static_cast<const uint8_t*>(src);
  auto* d = static_cast<uint8_t*>(dst);
  for (int64_t i = 0; i < n; ++i) d[i] = s[i * stride] != 0;
}
void load_native(DType t, const void* src, int64_t stride, void* dst, int64_t n) {
  switch (t) {
    case DType::Bool:
      return load_bool(src, stride, dst, n);
    case DType::U8:
      return load<int64_t, uint8_t>(src, stride, dst, n);
    case DType::I8:
      return load<int64_t, int8_t>(src, stride, dst, n);
    case DType::U16:
      return load<int64_t, uint16_t>(src, stride, dst, n);
    case DType::I16:
      return load<int64_t, int16_t>(src, stride, dst, n);
    case DType::I32:
      return load<int64_t, int32_t>(src, stride, dst, n);
    case DType::I64:
      return load<int64_t, int64_t>(src, stride, dst, n);
    case DType::F16:
      return load<float, Half>(src, stride, dst, n);
    case DType::BF16:
      return load<float, BFloat>(src, stride, dst, n);
    case DType::F32:
      return load<float, float>(src, stride, dst, n);
    case DType::F64:
      return load<double, double>(src, stride, dst, n);
    default:
      MGE_ASSERT(false, "no row access for {}", dtype_name(t));
  }
}
void store_native(DType t, void* dst, int64_t stride, const void* src, int64_t n) {
  switch (t) {
    case DType::Bool:
      return store<uint8_t, bool>(dst, stride, src, n);
    case DType::U8:
      return store<int64_t, uint8_t>(dst, stride, src, n);
    case DType::I8:
      return store<int64_t, int8_t>(dst, stride, src, n);
    case DType::U16:
      return store<int64_t, uint16_t>(dst, stride, src, n);
    case DType::I16:
      return store<int64_t, int16_t>(dst, stride, src, n);
    case DType::I32:
      return store<int64_t, int32_t>(dst, stride, src, n);
    case DType::I64:
      return store<int64_t, int64_t>(dst, stride, src, n);
    case DType::F16:
      return store<float, Half>(dst, stride, src, n);
    case DType::BF16:
      return store<float, BFloat>(dst, stride, src, n);
    case DType::F32:
      return store<float, float>(dst, stride, src, n);
    case DType::F64:
      return store<double, double>(dst, stride, src, n);
    default:
      MGE_ASSERT(false, "no row access for {}", dtype_name(t));
  }
}

// Truncation, saturating at the bounds of int64, or of int32 when the result is at most 32 bits wide; NaN gives 0.
template <class F>
void to_i64(const void* src, void* dst, int64_t n, bool wide) {
  const F hi = wide ? F(0x1p63) : F(0x1p31);
  const int64_t max = wide ? INT64_MAX : INT32_MAX, min = wide ? INT64_MIN : INT32_MIN;
  auto* s = static_cast<const F*>(src);
  auto* d = static_cast<int64_t*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    F x = s[i];
    d[i] = x >= hi ? max : x < -hi ? min : x == x ? static_cast<int64_t>(x) : 0;
  }
}
template <class T>
void to_bool(const void* src, void* dst, int64_t n) {
  auto* s = static_cast<const T*>(src);
  auto* d = static_cast<uint8_t*>(dst);
  for (int64_t i = 0; i < n; ++i) d[i] = s[i] != T(0);
}
// `t` is the final dtype: it decides the saturation of float -> integer.
void convert(Compute from, const void* src, Compute to, void* dst, int64_t n, DType t) {
  auto key = [](Compute a, Compute b) { return static_cast<int>(a) * kComputeCount + static_cast<int>(b); };
  using enum Compute;
  const int k = key(from, to);
  if (k == key(Bool, I64)) return load<int64_t, uint8_t>(src, 1, dst, n);
  if (k == key(Bool, F32)) return load<float, uint8_t>(src, 1, dst, n);
  if (k == key(Bool, F64)) return load<double, uint8_t>(src, 1, dst, n);
  if (k == key(I64, F32)) return load<float, int64_t>(src, 1, dst, n);
  if (k == key(I64, F64)) return load<double, int64_t>(src, 1, dst, n);
  if (k == key(F32, F64)) return load<double, float>(src, 1, dst, n);
  if (k == key(F64, F32)) return load<float, double>(src, 1, dst, n);
  if (k == key(I64, Bool)) return to_bool<int64_t>(src, dst, n);
  if (k == key(F32, Bool)) return to_bool<float>(src, dst, n);
  if (k == key(F64, Bool)) return to_bool<double>(src, dst, n);
  if (k == key(F32, I64)) return to_i64<float>(src, dst, n, t == DType::I64);
  if (k == key(F64, I64)) return to_i64<double>(src, dst, n, t == DType::I64);
  MGE_ASSERT(false, "conversion of a type to itself");
}

}  // namespace

void load_row(DType t, const void* src, int64_t stride, Compute c, void* dst, int64_t n) {
  Compute own = compute_of(t);
  if (own == c) return load_native(t, src, stride, dst, n);
  alignas(64) char tmp[kRowTile * 8];
  load_native(t, src, stride, tmp, n);
  convert(own, tmp, c, dst, n, DType::I64);
}

void store_row(DType t, void* dst, int64_t stride, Compute c, const void* src, int64_t n) {
  Compute own = compute_of(t);
  if (own == c) return store_native(t, dst, stride, src, n);
  alignas(64) char tmp[kRowTile * 8];
  convert(c, src, own, tmp, n, t);
  store_native(t, dst, stride, tmp, n);
}

void write_scalar(void* p, DType t, double v) {
  if (t == DType::C64) {
    const float pair[] = {static_cast<float>(v), 0.0f};
    std::memcpy(p, pair, sizeof pair);
    return;
  }
  MGE_CHECK(t <= DType::F64, Type, "tensor: a number cannot become {}.", dtype_name(t));
  if (t == DType::F64)
    std::memcpy(p, &v, sizeof v);
  else
    store_row(t, p, 1, Compute::F64, &v, 1);
}

}  // namespace mge
