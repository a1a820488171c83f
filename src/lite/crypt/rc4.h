// The two stream ciphers of the original, made after RC4. They keep casual eyes off a model; whoever wants more uses
// AES. A key is two numbers of 64 bits, little-endian: that of the hash, then that of the stream.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lite {

/// Which is registered first: 128 bytes, of which 16 are used.
std::vector<uint8_t> rc4_default_key();

// Decrypted bytes are as long as the encrypted ones: padding to a multiple of 8 and a checksum word remain at the end.
// A checksum that does not hold is an Env error.
std::vector<uint8_t> rc4_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key);
std::vector<uint8_t> fast_rc4_decrypt(const void* data, size_t size, const std::vector<uint8_t>& key);
std::vector<uint8_t> rc4_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key);
std::vector<uint8_t> fast_rc4_encrypt(std::span<const uint8_t> plain, const std::vector<uint8_t>& key);

}  // namespace lite
