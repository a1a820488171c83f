// float16 and bfloat16 storage types. Arithmetic goes through float; conversions round to nearest even.
//   float f = float(Half{bits});   Half h(1.5f);
#pragma once
#include <bit>
#include <cstdint>

namespace mge {

inline float half_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) {  // inf, or NaN made quiet as the hardware does
    uint32_t payload = (rest & 0x3ff) << 13;
    return std::bit_cast<float>(sign | 0x7f800000 | payload | (payload ? 0x400000 : 0));
  }
  if (rest >= 0x0400) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
  float m = static_cast<float>(rest) * 0x1p-24f;  // zero or subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(m));
}

inline uint16_t float_to_half(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  if (a >= 0x38800000) {                                             // normal
    uint32_t r = a - 0x38000000;
    return static_cast<uint16_t>(sign | ((r + 0xfff + (r >> 13 & 1)) >> 13));
  }
  // Adding 0.5 aligns the subnormal's last bit with the last bit of the sum, so the hardware does the rounding.
  float s = std::bit_cast<float>(a) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(s) - 0x3f000000));
}

inline float bfloat_to_float(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

inline uint16_t float_to_bfloat(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float f) : bits(float_to_half(f)) {}
  explicit operator float() const { return half_to_float(bits); }
};
struct BFloat {
  uint16_t bits = 0;
  BFloat() = default;
  explicit BFloat(float f) : bits(float_to_bfloat(f)) {}
  explicit operator float() const { return bfloat_to_float(bits); }
};

}  // namespace mge
