// Numbers as unsigned integers with the same order: NaN last, and the same for every NaN, -0 equal to 0. A descending
// order is that of the inverted key, so equal elements stay in their order both ways (a stable sort).
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/half.h"

namespace mge {

inline uint32_t sort_key(float x) {
  if (x != x) return 0xFFFFFFFFu;
  auto bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 becomes +0
  // Signs are as random as the numbers: no branch.
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}
inline uint64_t sort_key(double x) {
  if (x != x) return ~uint64_t{0};
  auto bits = std::bit_cast<uint64_t>(x + 0.0);
  return bits ^ (static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63) | uint64_t{1} << 63);
}
inline uint32_t sort_key(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
inline uint64_t sort_key(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

/// Calls f(read) with read(const void* base, int64_t i) giving the key of element i of a tensor of dtype t. Keys are 32
/// bits wide, 64 for 64-bit numbers. False: the dtype has no order.
template <class F>
bool with_sort_key(DType t, F f) {
  auto at = [](auto* tag, const void* p, int64_t i) { return static_cast<decltype(tag)>(p)[i]; };
  auto narrow = [&](auto* tag) {
    f([=](const void* p, int64_t i) { return sort_key(static_cast<int32_t>(at(tag, p, i))); });
  };
  auto wide = [&](auto* tag) { f([=](const void* p, int64_t i) { return sort_key(at(tag, p, i)); }); };
  switch (t) {
    case DType::Bool:
    case DType::U8:
      return narrow(static_cast<const uint8_t*>(nullptr)), true;
    case DType::I8:
      return narrow(static_cast<const int8_t*>(nullptr)), true;
    case DType::U16:
      return narrow(static_cast<const uint16_t*>(nullptr)), true;
    case DType::I16:
      return narrow(static_cast<const int16_t*>(nullptr)), true;
    case DType::I32:
      return wide(static_cast<const int32_t*>(nullptr)), true;
    case DType::I64:
      return wide(static_cast<const int64_t*>(nullptr)), true;
    case DType::F32:
      return wide(static_cast<const float*>(nullptr)), true;
    case DType::F64:
      return wide(static_cast<const double*>(nullptr)), true;
    case DType::F16:
      f([](const void* p, int64_t i) { return sort_key(half_to_float(static_cast<const uint16_t*>(p)[i])); });
      return true;
    case DType::BF16:
      f([](const void* p, int64_t i) { return sort_key(bfloat_to_float(static_cast<const uint16_t*>(p)[i])); });
      return true;
    default:
      return false;
  }
}

}  // namespace mge
