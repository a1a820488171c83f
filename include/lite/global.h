// Functions that belong to no network.
#ifndef LITE_GLOBAL_H
#define LITE_GLOBAL_H

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lite/network.h"

namespace lite {

using DecryptionFunc = std::function<std::vector<uint8_t>(const void*, size_t, const std::vector<uint8_t>&)>;
using ParseInfoFunc = std::function<bool(const void*, size_t, const std::string model_name, Config&, NetworkIO&,
                                         std::unordered_map<std::string, LiteAny>& isolated, std::string& extra_info)>;

/// For Config.bare_model_cryption_name and packed models. AES_default, RC4_default and SIMPLE_FAST_RC4_default are
/// there.
LITE_API bool register_decryption_and_key(std::string decrypt_name, const DecryptionFunc& func,
                                          const std::vector<uint8_t>& key);
/// An empty function or key keeps the old one.
LITE_API bool update_decryption_or_key(std::string decrypt_name, const DecryptionFunc& func,
                                       const std::vector<uint8_t>& key);
LITE_API bool register_parse_info_func(std::string info_type, const ParseInfoFunc& parse_func);

LITE_API void get_version(int& major, int& minor, int& patch);
LITE_API void set_log_level(LiteLogLevel level);
LITE_API LiteLogLevel get_log_level();
LITE_API size_t get_device_count(LiteDeviceType device_type);
/// Gives cached memory back to the system.
LITE_API void try_coalesce_all_free_memory();
LITE_API void set_loader_lib_path(const std::string& loader_path);
/// The fast-run cache: read now; written by dump_persistent_cache, or whenever kernels were measured (always_sync).
LITE_API void set_persistent_cache(const std::string& cache_path, bool always_sync = false);
LITE_API void dump_persistent_cache(const std::string& cache_path);
// Refused: TensorRT and memory pairs belong to other devices than the CPU.
LITE_API void set_tensor_rt_cache(std::string tensorrt_cache_path);
LITE_API void dump_tensor_rt_cache();
LITE_API bool register_memory_pair(void* vir_ptr, void* phy_ptr, size_t length, LiteDeviceType device,
                                   LiteBackend backend = LITE_DEFAULT);
LITE_API bool clear_memory_pair(void* vir_ptr, void* phy_ptr, LiteDeviceType device,
                                LiteBackend backend = LITE_DEFAULT);
LITE_API void* lookup_physic_ptr(void* vir_ptr, LiteDeviceType device, LiteBackend backend = LITE_DEFAULT);

}  // namespace lite

#endif
