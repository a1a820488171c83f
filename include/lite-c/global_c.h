/* C API, functions that belong to no network. Every int function returns 0, or -1 with a text kept per thread:
 *   if (LITE_load_model_from_path(net, "lenet.mge")) fprintf(stderr, "%s\n", LITE_get_last_error());
 * NULL and destroyed handles are errors, never a crash. */
#ifndef LITE_C_GLOBAL_C_H
#define LITE_C_GLOBAL_C_H

#include <stddef.h>
#include <stdint.h>

#include "lite-c/network_c.h"
#include "lite/common_enum_c.h"
#include "lite/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called with out == NULL first: returns the size of the decrypted data. */
typedef size_t (*LiteDecryptionFunc)(const void* in, size_t in_size, const uint8_t* key, size_t key_size,
                                     const void* out);
typedef int (*LiteParseInfoFunc)(const void* info, size_t info_size, const char* model_name, LiteConfig* config,
                                 LiteNetworkIO* network_io, int* device_id, size_t* nr_threads,
                                 int* is_cpu_inplace_mode, int* use_tensorrt);

LITE_API int LITE_get_version(int* major, int* minor, int* patch);
LITE_API ErrorCode LITE_get_last_error_code(void);
LITE_API void LITE_clear_last_error(void);
/* The text of this thread's last error; valid until its next call. Empty when there was none. */
LITE_API const char* LITE_get_last_error(void);
LITE_API int LITE_get_device_count(LiteDeviceType device_type, size_t* count);
LITE_API int LITE_try_coalesce_all_free_memory(void);
LITE_API int LITE_set_log_level(LiteLogLevel level);
LITE_API int LITE_get_log_level(LiteLogLevel* level);

/* Methods of decryption for LiteConfig.bare_model_cryption_name and packed models, by their names. AES_default,
 * RC4_default and SIMPLE_FAST_RC4_default are there. An update with a null function or an empty key keeps the old one.
 */
LITE_API int LITE_register_decryption_and_key(const char* name, LiteDecryptionFunc func, const uint8_t* key,
                                              size_t key_size);
LITE_API int LITE_update_decryption_or_key(const char* name, LiteDecryptionFunc func, const uint8_t* key,
                                           size_t key_size);
/* The structs begin as the network is configured. Nonzero means failure. */
LITE_API int LITE_register_parse_info_func(const char* info_type, LiteParseInfoFunc func);
LITE_API int LITE_set_loader_lib_path(const char* loader_path);
/* The fast-run cache: read now; written by dump_persistent_cache, or whenever kernels were measured (always_sync). */
LITE_API int LITE_set_persistent_cache(const char* cache_path, int always_sync);
LITE_API int LITE_dump_persistent_cache(const char* cache_path);
/* These are refused: TensorRT and memory pairs belong to other devices than the CPU. */
LITE_API int LITE_set_tensor_rt_cache(const char* cache_path);
LITE_API int LITE_dump_tensor_rt_cache(void);
LITE_API int LITE_register_memory_pair(void* vir_ptr, void* phy_ptr, size_t length, LiteDeviceType device,
                                       LiteBackend backend);
LITE_API int LITE_clear_memory_pair(void* vir_ptr, void* phy_ptr, LiteDeviceType device, LiteBackend backend);
LITE_API int LITE_lookup_physic_ptr(void* vir_ptr, void** phy_ptr, LiteDeviceType device, LiteBackend backend);

#ifdef __cplusplus
}
#endif
#endif
