// XXH64 (Collet, xxHash specification 0.1.1): the checksum of every section. Each 8-byte step is a bijection of both
// the state and the data, so a changed word can only be missed when the final mixing of 64 bits collides.
//   uint64_t h = xxh64({data, size});        Xxh64 s; s.update(a); s.update(b); s.digest() == hash of both in a row
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace mge::serial {

class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  void update(std::span<const uint8_t> bytes);
  uint64_t digest() const;

 private:
  uint64_t lane_[4];
  uint64_t seed_, total_ = 0;
  uint8_t rest_[32];
  size_t rest_size_ = 0;
};

uint64_t xxh64(std::span<const uint8_t> bytes, uint64_t seed = 0);

}  // namespace mge::serial
