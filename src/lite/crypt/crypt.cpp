#include "lite/crypt/crypt.h"

#include <map>
#include <mutex>

#include "base/features.h"
#include "lite/crypt/rc4.h"
#include "lite/error.h"

namespace lite {
namespace {

struct Method {
  DecryptionFunc decrypt;
  std::vector<uint8_t> key;
};

struct Table {
  std::mutex mutex;
  std::map<std::string, Method, std::less<>> methods;
};
Table& table() {
  static Table* t = [] {
    auto* made = new Table;
    std::vector<uint8_t> aes_key(32);
    for (size_t i = 0; i < aes_key.size(); ++i) aes_key[i] = static_cast<uint8_t>(i);
    made->methods = {{"AES_default", {aes_decrypt, aes_key}},
                     {"RC4_default", {rc4_decrypt, rc4_default_key()}},
                     {"SIMPLE_FAST_RC4_default", {fast_rc4_decrypt, rc4_default_key()}}};
    return made;
  }();
  return *t;
}

// The table's lock is held.
Method& find(Table& t, const std::string& name) {
  auto it = t.methods.find(name);
  if (it != t.methods.end()) return it->second;
  std::string names;
  for (auto& [known, method] : t.methods) names += (names.empty() ? "" : ", ") + known;
  mge::fail(mge::ErrorKind::Value,
            "lite: there is no decryption method '{}'; there are {}. Register it with register_decryption_and_key.",
            name, names);
}

Method copy_of(const std::string& name) {
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  return find(t, name);
}

}  // namespace

std::vector<uint8_t> decrypt(const std::string& method, std::span<const uint8_t> bytes, const std::string& who) {
  if (method.empty() || method == "NONE") return {bytes.begin(), bytes.end()};
  mge::require("ciphers", "lite: encrypted data");
  mge::note("ciphers");
  const Method m = copy_of(method);  // the user's function may register others
  std::vector<uint8_t> out;
  try {
    out = m.decrypt(bytes.data(), bytes.size(), m.key);
  } catch (const mge::Error& e) {
    mge::fail(e.kind(), "{}: decrypting with {}: {}.", who, method, e.text());
  }
  MGE_CHECK(!out.empty(), Env, "{}: decrypting with {} gave nothing: its function failed or the key is wrong.", who,
            method);
  return out;
}

std::vector<uint8_t> encrypt(const std::string& method, std::span<const uint8_t> bytes) {
  using Encrypt = std::vector<uint8_t> (*)(std::span<const uint8_t>, const std::vector<uint8_t>&);
  static const std::pair<const char*, Encrypt> known[] = {
      {"AES_default", aes_encrypt}, {"RC4_default", rc4_encrypt}, {"SIMPLE_FAST_RC4_default", fast_rc4_encrypt}};
  if (method.empty() || method == "NONE") return {bytes.begin(), bytes.end()};
  mge::require("ciphers", "lite: encrypted data");
  for (auto& [name, function] : known)
    if (method == name) return function(bytes, copy_of(method).key);
  mge::fail(mge::ErrorKind::Value,
            "lite: cannot encrypt with '{}'; it must be AES_default, RC4_default, SIMPLE_FAST_RC4_default or NONE.",
            method);
}

void add_decryption(const std::string& name, const DecryptionFunc& func, const std::vector<uint8_t>& key) {
  mge::require("ciphers", "lite: register_decryption_and_key");
  MGE_CHECK(!name.empty() && name != "NONE", Value, "lite: a decryption method needs a name of its own; got '{}'.",
            name);
  MGE_CHECK(func, Value, "lite: the function of decryption method '{}' is empty.", name);
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  MGE_CHECK(t.methods.emplace(name, Method{func, key}).second, Value,
            "lite: decryption method '{}' is registered already. Change it with update_decryption_or_key.", name);
}

void update_decryption(const std::string& name, const DecryptionFunc& func, const std::vector<uint8_t>& key) {
  mge::require("ciphers", "lite: update_decryption_or_key");
  Table& t = table();
  std::lock_guard<std::mutex> lock(t.mutex);
  Method& m = find(t, name);
  if (func) m.decrypt = func;
  if (!key.empty()) m.key = key;
}

}  // namespace lite
