#include "lite-c/global_c.h"

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

int LITE_register_decryption_and_key(const char* name, LiteDecryptionFunc, const uint8_t*, size_t) {
  return c_guarded([&] { register_decryption_and_key(not_null(name, "name"), {}, {}); });
}
int LITE_update_decryption_or_key(const char* name, LiteDecryptionFunc, const uint8_t*, size_t) {
  return c_guarded([&] { update_decryption_or_key(not_null(name, "name"), {}, {}); });
}
int LITE_register_parse_info_func(const char* type, LiteParseInfoFunc) {
  return c_guarded([&] { register_parse_info_func(not_null(type, "info_type"), {}); });
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
