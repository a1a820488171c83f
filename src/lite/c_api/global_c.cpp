#include "lite-c/global_c.h"

#include <algorithm>
#include <cstdint>

#include "lite/c_api/handles.h"
#include "lite/global.h"

using namespace lite;

int LITE_get_version(int* major, int* minor, int* patch) {
  return c_guarded(
      [&] { get_version(*not_null(major, "major"), *not_null(minor, "minor"), *not_null(patch, "patch")); });
}
int LITE_get_device_count(LiteDeviceType type, size_t* count) {
  return c_guarded([&] { *not_null(count, "count") = get_device_count(type); });
}
int LITE_try_coalesce_all_free_memory(void) {
  return c_guarded([] { try_coalesce_all_free_memory(); });
}
int LITE_set_log_level(LiteLogLevel level) {
  return c_guarded([&] { set_log_level(level); });
}
int LITE_get_log_level(LiteLogLevel* level) {
  return c_guarded([&] { *not_null(level, "level") = get_log_level(); });
}

namespace {

std::vector<uint8_t> key_bytes(const uint8_t* key, size_t size) {
  MGE_CHECK(key || size == 0, Value, "lite: the key is a null pointer of {} bytes.", size);
  MGE_CHECK(size <= 1 << 20, Value, "lite: a key of {} bytes.", size);
  return size ? std::vector<uint8_t>(key, key + size) : std::vector<uint8_t>();
}

// Called twice: how much will it be, then into memory of that size.
DecryptionFunc decryption(LiteDecryptionFunc func) {
  if (!func) return {};
  return [func](const void* data, size_t size, const std::vector<uint8_t>& key) {
    const size_t n = func(data, size, key.data(), key.size(), nullptr);
    MGE_CHECK(uint64_t{n} <= uint64_t{1} << 40, Env, "its function says that {} bytes come out of {}", n, size);
    std::vector<uint8_t> out(n);
    if (n) out.resize(std::min(n, func(data, size, key.data(), key.size(), out.data())));
    return out;
  };
}

// A parser in C writes into C structs that begin as the network's; what they point to need not outlive its call.
bool parse_with(LiteParseInfoFunc func, const void* info, size_t size, const std::string& model_name, Config& config,
                NetworkIO& io, std::unordered_map<std::string, LiteAny>& isolated) {
  LiteConfig c = to_c(config);
  std::vector<LiteIO> inputs = to_c(io.inputs), outputs = to_c(io.outputs);
  LiteNetworkIO ios{inputs.data(), outputs.data(), inputs.size(), outputs.size()};
  int device_id = config.device_id, inplace = 0, tensorrt = 0;
  size_t threads = 0;
  const int rc = func(info, size, model_name.c_str(), &c, &ios, &device_id, &threads, &inplace, &tensorrt);
  MGE_CHECK(rc == 0, Env, "the function that parses its info returned {}.", rc);
  const bool half = config.options.enable_f16_io_comp;  // no C struct has it
  NetworkIO parsed = to_cpp(ios);
  config = to_cpp(c);
  config.options.enable_f16_io_comp = half;
  io = std::move(parsed);
  isolated["device_id"] = static_cast<int32_t>(device_id);
  if (threads) isolated["number_threads"] = static_cast<uint32_t>(std::min<size_t>(threads, UINT32_MAX));
  isolated["enable_inplace_model"] = inplace != 0;
  isolated["use_tensorrt"] = tensorrt != 0;
  return true;
}

}  // namespace

int LITE_register_decryption_and_key(const char* name, LiteDecryptionFunc func, const uint8_t* key, size_t size) {
  return c_guarded(
      [&] { register_decryption_and_key(not_null(name, "name"), decryption(func), key_bytes(key, size)); });
}
int LITE_update_decryption_or_key(const char* name, LiteDecryptionFunc func, const uint8_t* key, size_t size) {
  return c_guarded([&] { update_decryption_or_key(not_null(name, "name"), decryption(func), key_bytes(key, size)); });
}
int LITE_register_parse_info_func(const char* type, LiteParseInfoFunc func) {
  return c_guarded([&] {
    not_null(type, "info_type");
    MGE_CHECK(func, Value, "lite: the function of info parser '{}' is a null pointer.", type);
    register_parse_info_func(
        type, [func](const void* info, size_t size, const std::string& model, Config& config, NetworkIO& io,
                     std::unordered_map<std::string, LiteAny>& isolated,
                     std::string&) { return parse_with(func, info, size, model, config, io, isolated); });
  });
}
int LITE_set_loader_lib_path(const char* path) {
  return c_guarded([&] { set_loader_lib_path(not_null(path, "loader_path")); });
}
int LITE_set_persistent_cache(const char* path, int always_sync) {
  return c_guarded([&] { set_persistent_cache(not_null(path, "cache_path"), always_sync != 0); });
}
int LITE_dump_persistent_cache(const char* path) {
  return c_guarded([&] { dump_persistent_cache(not_null(path, "cache_path")); });
}
int LITE_set_tensor_rt_cache(const char* path) {
  return c_guarded([&] { set_tensor_rt_cache(not_null(path, "cache_path")); });
}
int LITE_dump_tensor_rt_cache(void) {
  return c_guarded([] { dump_tensor_rt_cache(); });
}
int LITE_register_memory_pair(void* v, void* p, size_t n, LiteDeviceType d, LiteBackend b) {
  return c_guarded([&] { register_memory_pair(v, p, n, d, b); });
}
int LITE_clear_memory_pair(void* v, void* p, LiteDeviceType d, LiteBackend b) {
  return c_guarded([&] { clear_memory_pair(v, p, d, b); });
}
int LITE_lookup_physic_ptr(void* v, void** p, LiteDeviceType d, LiteBackend b) {
  return c_guarded([&] { *not_null(p, "phy_ptr") = lookup_physic_ptr(v, d, b); });
}
