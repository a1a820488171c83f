#include "lite/crypt/rc4.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace lite {
namespace {

constexpr uint64_t kHashKey = 0x686B66676A65696C, kStreamKey = 0x7A7B7D78797E7F7C;

class Stream {
 public:
  explicit Stream(uint64_t key) {
    for (int k = 0; k < 256; ++k) s_[k] = static_cast<uint8_t>(k);
    for (int k = 0, at = 0; k < 256; ++k) {
      at = (at + s_[k] + static_cast<int>(key >> 8 * (k % 8) & 255)) & 255;
      std::swap(s_[k], s_[at]);
    }
    for (int k = 0; k < 768; ++k) next();
    for (int more = next(); more > 0; --more) next();
  }
  uint64_t next64() {
    uint64_t word = 0;
    for (int k = 0; k < 8; ++k) word |= static_cast<uint64_t>(next()) << 8 * k;
    return word;
  }

 private:
  uint8_t at(int index) const { return s_[index & 255]; }
  uint8_t next() {
    const uint8_t a = s_[++i_];
    j_ = static_cast<uint8_t>(j_ + a);
    const uint8_t b = s_[j_];
    s_[i_] = b;
    s_[j_] = a;
    const int c = at(i_ << 5 ^ j_ >> 3) + at(j_ << 5 ^ i_ >> 3);
    return static_cast<uint8_t>((at(a + b) + at((c & 255) ^ 0xAA)) ^ at(j_ + b));
  }
  uint8_t s_[256];
  uint8_t i_ = 0, j_ = 0;
};

struct Hash {
  uint64_t h;
  void feed(uint64_t v) {
    v ^= v >> 23;
    v *= 0x2127599BF4325C37;
    v ^= v >> 47;
    h ^= v;
    h *= 0x880355F21E6D1965;
  }
};

struct Keys {
  uint64_t hash, stream;
};
Keys keys_of(const std::vector<uint8_t>& key, const char* method) {
  MGE_CHECK(key.size() >= 16, Value, "{} takes a key of two 8-byte numbers, 16 bytes or more; got {}", method,
            key.size());
  Keys k;
  std::memcpy(&k, key.data(), sizeof k);
  return k;
}

// The words of a whole file, zeros behind the last byte.
std::vector<uint64_t> words_of(const void* data, size_t size) {
  std::vector<uint64_t> w((size + 7) / 8);
  if (size) std::memcpy(w.data(), data, size);
  return w;
}
std::vector<uint64_t> encrypted_words(const void* data, size_t size) {
  MGE_CHECK(size >= 16 && size % 8 == 0, Env,
            "{} bytes are no encrypted file, which is two or more words of 8 bytes: it was cut off or is not encrypted",
            size);
  return words_of(data, size);
}
std::vector<uint8_t> bytes_of(const std::vector<uint64_t>& w) {
  std::vector<uint8_t> out(w.size() * 8);
  std::memcpy(out.data(), w.data(), out.size());
  return out;
}

constexpr const char* kWrong = "the key is wrong or the data is damaged: the checksum does not hold";

}  // namespace

std::vector<uint8_t> rc4_default_key() {
  std::vector<uint8_t> key(128, 0);
  const uint64_t words[] = {kHashKey, kStreamKey};
  std::memcpy(key.data(), words, sizeof words);
  return key;
}

std::vector<uint8_t> rc4_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key) {
  const Keys k = keys_of(key, "RC4_default");
  std::vector<uint64_t> w = encrypted_words(data, size);
  Stream outer(k.stream);
  Hash inner_hash{k.hash};
  for (size_t i = 0; i + 1 < w.size(); ++i) inner_hash.feed(w[i] ^= outer.next64());
  const uint64_t plain_hash = w.back() ^ outer.next64() ^ inner_hash.h;
  Stream inner(plain_hash);
  Hash check{k.hash};
  for (size_t i = 0; i + 1 < w.size(); ++i) check.feed(w[i] ^= inner.next64());
  MGE_CHECK(check.h == plain_hash, Env, "{}", kWrong);
  w.back() = 0;
  return bytes_of(w);
}

std::vector<uint8_t> rc4_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key) {
  const Keys k = keys_of(key, "RC4_default");
  std::vector<uint64_t> w = words_of(plain.data(), plain.size());
  Hash plain_hash{k.hash}, inner_hash{k.hash};
  for (uint64_t x : w) plain_hash.feed(x);
  Stream inner(plain_hash.h), outer(k.stream);
  for (uint64_t& x : w) {
    x ^= inner.next64();
    inner_hash.feed(x);
    x ^= outer.next64();
  }
  w.push_back(plain_hash.h ^ inner_hash.h ^ outer.next64());
  return bytes_of(w);
}

std::vector<uint8_t> fast_rc4_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key) {
  const Keys k = keys_of(key, "SIMPLE_FAST_RC4_default");
  std::vector<uint64_t> w = encrypted_words(data, size);
  Hash hash{k.hash};
  Stream stream(k.stream);
  for (size_t i = 0; i + 1 < w.size(); ++i) {
    hash.feed(w[i]);
    w[i] ^= stream.next64();
  }
  MGE_CHECK(hash.h == w.back(), Env, "{}", kWrong);
  w.back() = 0;
  return bytes_of(w);
}

std::vector<uint8_t> fast_rc4_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key) {
  const Keys k = keys_of(key, "SIMPLE_FAST_RC4_default");
  std::vector<uint64_t> w = words_of(plain.data(), plain.size());
  Hash hash{k.hash};
  Stream stream(k.stream);
  for (uint64_t& x : w) hash.feed(x ^= stream.next64());
  w.push_back(hash.h);
  return bytes_of(w);
}

}  // namespace lite
