// Encrypted models, by the names of their methods: those of the library below, and what programs register.
//   std::vector<uint8_t> plain = decrypt("AES_default", bytes, "model.lite");
// AES_default is AES-256-CBC by mbedTLS: 16 bytes IV, ciphertext, 8 bytes length (big-endian). RC4_default and
// SIMPLE_FAST_RC4_default are the original's own ciphers (rc4.h); their results keep the padding, at most 15 bytes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lite/global.h"

namespace lite {

/// "NONE" and "" copy. An Env error that starts with `who` for a wrong key or damaged bytes, a Value error that lists
/// the methods for an unknown one.
std::vector<uint8_t> decrypt(const std::string& method, std::span<const uint8_t> bytes, const std::string& who);
/// The other way round, for those of the library, with the key that is registered.
std::vector<uint8_t> encrypt(const std::string& method, std::span<const uint8_t> bytes);

void add_decryption(const std::string& name, const DecryptionFunc& func, const std::vector<uint8_t>& key);
/// An empty function or key keeps the old one.
void update_decryption(const std::string& name, const DecryptionFunc& func, const std::vector<uint8_t>& key);

// aes.cpp. Errors come without `who`.
std::vector<uint8_t> aes_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key);
std::vector<uint8_t> aes_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key);

}  // namespace lite
