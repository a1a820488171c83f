// Hash mixing for cache keys. uint64_t h = hash_mix(seed, value);
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace mge {

inline uint64_t hash_mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull;
  h *= 0xff51afd7ed558ccdull;
  return h ^ (h >> 32);
}
inline uint64_t hash_double(double d) {
  uint64_t u;
  std::memcpy(&u, &d, 8);
  return u;
}
inline uint64_t hash_bytes(std::string_view s, uint64_t h = 0xcbf29ce484222325ull) {
  for (unsigned char c : s) h = (h ^ c) * 0x100000001b3ull;
  return hash_mix(h, s.size());
}

}  // namespace mge
