// AES-256-CBC with PKCS#7 padding, by mbedTLS: the only file that names it. Builds without it (MGE_WITH_CRYPTO=OFF)
// refuse such models by name.
#include "lite/crypt/crypt.h"
#include "lite/error.h"

#if MGE_WITH_CRYPTO
#include <mbedtls/aes.h>

#include <algorithm>
#include <cstring>
#include <random>
#endif

namespace lite {

#if MGE_WITH_CRYPTO
namespace {

constexpr size_t kBlock = 16, kLength = 8;

class Aes {
 public:
  Aes(const std::vector<uint8_t>& key, bool encrypts) {
    MGE_CHECK(key.size() == 32, Value, "AES_default takes a key of 32 bytes; got {}", key.size());
    mbedtls_aes_init(&context_);
    const int rc = encrypts ? mbedtls_aes_setkey_enc(&context_, key.data(), 256)
                            : mbedtls_aes_setkey_dec(&context_, key.data(), 256);
    MGE_ASSERT(rc == 0, "mbedTLS refuses a key of 256 bits: {}", rc);
  }
  ~Aes() { mbedtls_aes_free(&context_); }
  Aes(const Aes&) = delete;
  Aes& operator=(const Aes&) = delete;

  void run(int mode, const uint8_t* iv, const uint8_t* in, size_t bytes, uint8_t* out) {
    uint8_t state[kBlock];
    std::memcpy(state, iv, kBlock);
    const int rc = mbedtls_aes_crypt_cbc(&context_, mode, bytes, state, in, out);
    MGE_ASSERT(rc == 0, "mbedTLS: {}", rc);
  }

 private:
  mbedtls_aes_context context_;
};

}  // namespace

std::vector<uint8_t> aes_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key) {
  const auto* p = static_cast<const uint8_t*>(data);
  const size_t body = size < kBlock + kLength ? 0 : size - kBlock - kLength;
  MGE_CHECK(body > 0 && body % kBlock == 0, Env, "{} bytes are no AES-256-CBC file: it was cut off or is not encrypted",
            size);
  uint64_t length = 0;
  for (size_t i = size - kLength; i < size; ++i) length = length << 8 | p[i];
  MGE_CHECK(length <= body && body - length <= kBlock, Env,
            "the length {} at the end does not fit {} bytes of data: it was cut off or is not encrypted", length, body);
  std::vector<uint8_t> out(body);
  Aes(key, false).run(MBEDTLS_AES_DECRYPT, p, p + kBlock, body, out.data());
  const size_t pad = body - length;  // all of these bytes hold their number
  for (size_t i = length; i < body; ++i)
    MGE_CHECK(out[i] == pad, Env, "the key is wrong or the data is damaged: the padding is not what was written");
  out.resize(length);
  return out;
}

std::vector<uint8_t> aes_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key) {
  const size_t pad = kBlock - plain.size() % kBlock, body = plain.size() + pad;
  std::vector<uint8_t> padded(body, static_cast<uint8_t>(pad)), out(kBlock + body + kLength);
  std::copy(plain.begin(), plain.end(), padded.begin());
  std::random_device random;
  for (size_t i = 0; i < kBlock; ++i) out[i] = static_cast<uint8_t>(random());
  Aes(key, true).run(MBEDTLS_AES_ENCRYPT, out.data(), padded.data(), body, out.data() + kBlock);
  for (size_t i = 0; i < kLength; ++i) out[kBlock + body + i] = static_cast<uint8_t>(plain.size() >> 8 * (7 - i));
  return out;
}

#else

namespace {
[[noreturn]] void refuse() {
  mge::fail(mge::ErrorKind::NotImplemented,
            "AES_default is not in this library: it was built without mbedTLS (MGE_WITH_CRYPTO=OFF). RC4_default, "
            "SIMPLE_FAST_RC4_default and what a program registers work");
}
}  // namespace
std::vector<uint8_t> aes_decrypt(const void*, size_t, const std::vector<uint8_t>&) { refuse(); }
std::vector<uint8_t> aes_encrypt(std::span<const uint8_t>, const std::vector<uint8_t>&) { refuse(); }

#endif

}  // namespace lite
