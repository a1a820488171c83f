/* C API, networks.
 *   LiteNetwork net; LiteTensor x, y;
 *   LITE_make_default_network(&net);
 *   LITE_load_model_from_path(net, "lenet.mge");
 *   LITE_get_io_tensor(net, "data", LITE_INPUT, &x);
 *   LITE_reset_tensor_memory(x, pixels, sizeof pixels);
 *   LITE_forward(net);  LITE_wait(net);
 *   LITE_get_io_tensor(net, "logits", LITE_OUTPUT, &y);
 * Threads may share handles: runs of a network follow each other, and what another thread has destroyed is an error.
 * See docs/lite.md and examples/lite_c. */
#ifndef LITE_C_NETWORK_C_H
#define LITE_C_NETWORK_C_H

#include <stddef.h>

#include "lite-c/tensor_c.h"
#include "lite/common_enum_c.h"
#include "lite/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LiteOptions {
  int weight_preprocess;
  int fuse_preprocess;
  int fake_next_exec;
  int var_sanity_check_first_run;
  int const_shape;
  int force_dynamic_alloc;
  int force_output_dynamic_alloc;
  int force_output_use_user_specified_memory;
  int no_profiling_on_shape_change;
  int jit_level;
  int comp_node_seq_record_level;
  int graph_opt_level;
  int async_exec_level;
  int enable_nchw44;
  int enable_nchw44_dot;
  int enable_nchw88;
  int enable_nhwcd4;
  int enable_nchw4;
  int enable_nchw32;
  int enable_nchw64;
} LiteOptions;

typedef struct LiteConfig {
  int has_compression;
  int device_id;
  LiteDeviceType device_type;
  LiteBackend backend;
  const char* bare_model_cryption_name;
  LiteOptions options;
  int auto_optimize_inference;
  const char* discrete_input_name;
} LiteConfig;

typedef struct LiteExtraConfig {
  int disable_configure_by_model_info;
} LiteExtraConfig;

typedef struct LiteIO {
  const char* name;
  int is_host;
  LiteIOType io_type;
  LiteLayout config_layout;
} LiteIO;

typedef struct LiteNetworkIO {
  LiteIO* inputs;
  LiteIO* outputs;
  size_t input_size;
  size_t output_size;
} LiteNetworkIO;

typedef void* LiteNetwork;

extern LITE_API const LiteOptions default_option;
extern LITE_API const LiteIO default_io;
/* Fresh defaults, per thread; copy what you change: LiteConfig c = *default_config(); */
LITE_API LiteConfig* default_config(void);
LITE_API LiteNetworkIO* default_network_io(void);

typedef void* (*LiteAllocate)(LiteDeviceType device_type, int device_id, size_t size, size_t align);
typedef void (*LiteFree)(LiteDeviceType device_type, int device_id, void* ptr);
typedef int (*LiteThreadAffinityCallback)(int thread_id);
typedef int (*LiteAsyncCallback)(void);
typedef int (*LiteAsyncCallbackWithData)(void* user_data);
typedef int (*LiteStartCallback)(const LiteIO* inputs, const LiteTensor* input_tensors, size_t size);
typedef int (*LiteStartCallbackWithData)(const LiteIO* inputs, const LiteTensor* input_tensors, size_t size,
                                         void* user_data);
typedef int (*LiteFinishCallback)(const LiteIO* outputs, const LiteTensor* output_tensors, size_t size);
typedef int (*LiteFinishCallbackWithData)(const LiteIO* outputs, const LiteTensor* output_tensors, size_t size,
                                          void* user_data);

LITE_API int LITE_make_default_network(LiteNetwork* network);
LITE_API int LITE_make_network(LiteNetwork* network, const LiteConfig config, const LiteNetworkIO network_io);
LITE_API int LITE_make_network_config(LiteNetwork* network, const LiteConfig config);
LITE_API int LITE_destroy_network(LiteNetwork network);
/* The bytes are copied and may go after the call. */
LITE_API int LITE_load_model_from_mem(LiteNetwork network, void* model_mem, size_t size);
LITE_API int LITE_load_model_from_path(LiteNetwork network, const char* model_path);
LITE_API int LITE_shared_weight_with_network(LiteNetwork dst_network, const LiteNetwork src_network);
LITE_API int LITE_forward(const LiteNetwork network);
LITE_API int LITE_wait(const LiteNetwork network);

LITE_API int LITE_get_io_tensor(LiteNetwork network, const char* io_name, LiteTensorPhase phase, LiteTensor* tensor);
LITE_API int LITE_get_discrete_tensor(LiteNetwork network, const char* io_name, size_t n_idx, LiteTensorPhase phase,
                                      LiteTensor* tensor);
/* Strings belong to the network. */
LITE_API int LITE_get_input_name(const LiteNetwork network, size_t index, const char** name);
LITE_API int LITE_get_output_name(const LiteNetwork network, size_t index, const char** name);
/* Either pointer may be NULL: ask for the count first, then for the names. */
LITE_API int LITE_get_all_input_name(const LiteNetwork network, size_t* size, const char** name);
LITE_API int LITE_get_all_output_name(const LiteNetwork network, size_t* size, const char** name);

LITE_API int LITE_is_cpu_inplace_mode(const LiteNetwork network, int* is_cpu_inplace_mode);
LITE_API int LITE_get_cpu_threads_number(const LiteNetwork network, size_t* nr_threads);
LITE_API int LITE_get_device_id(const LiteNetwork network, int* device_id);
LITE_API int LITE_get_stream_id(const LiteNetwork network, int* stream_id);
LITE_API int LITE_get_device_type(const LiteNetwork network, LiteDeviceType* device_type);
LITE_API int LITE_get_model_extra_info(const LiteNetwork network, const char** info, int* info_size);
LITE_API int LITE_set_cpu_inplace_mode(LiteNetwork network);
LITE_API int LITE_set_cpu_threads_number(LiteNetwork network, size_t nr_threads);
LITE_API int LITE_set_device_id(LiteNetwork network, int device_id);
LITE_API int LITE_set_stream_id(LiteNetwork network, int stream_id);
LITE_API int LITE_use_tensorrt(LiteNetwork network);
LITE_API int LITE_set_network_algo_policy(LiteNetwork network, LiteAlgoSelectStrategy strategy);
LITE_API int LITE_set_network_algo_fastrun_config(LiteNetwork network, unsigned int shared_batch_size,
                                                  int binary_equal_between_batch);
LITE_API int LITE_set_network_algo_workspace_limit(LiteNetwork network, size_t workspace_limit);

/* A callback that does not return 0 makes forward or wait fail. */
LITE_API int LITE_set_async_callback(LiteNetwork network, const LiteAsyncCallback async_callback);
LITE_API int LITE_set_async_callback_with_userdata(LiteNetwork network, LiteAsyncCallbackWithData async_callback,
                                                   void* user_data);
LITE_API int LITE_set_start_callback(LiteNetwork network, const LiteStartCallback start_callback);
LITE_API int LITE_set_start_callback_with_userdata(LiteNetwork network, LiteStartCallbackWithData start_callback,
                                                   void* user_data);
LITE_API int LITE_set_finish_callback(LiteNetwork network, const LiteFinishCallback finish_callback);
LITE_API int LITE_set_finish_callback_with_userdata(LiteNetwork network, LiteFinishCallbackWithData finish_callback,
                                                    void* user_data);
LITE_API int LITE_set_runtime_thread_affinity(LiteNetwork network,
                                              const LiteThreadAffinityCallback thread_affinity_callback);
LITE_API int LITE_set_memory_allocator(LiteNetwork network, const LiteAllocate allocate_fun, const LiteFree free_fun);
/* dst first. (The name is spelt as its callers know it.) */
LITE_API int LITE_share_runtime_memroy(LiteNetwork dst_network, LiteNetwork src_network);

LITE_API int LITE_enable_profile_performance(LiteNetwork network, const char* profile_json_file_path);
LITE_API int LITE_enable_io_txt_dump(LiteNetwork network, const char* io_txt_out_file);
LITE_API int LITE_enable_io_bin_dump(LiteNetwork network, const char* io_bin_out_dir);
LITE_API int LITE_get_static_memory_alloc_info(LiteNetwork network, const char* log_dir);
LITE_API int LITE_enable_global_layout_transform(LiteNetwork network);
LITE_API int LITE_dump_layout_transform_model(LiteNetwork network, const char* dump_file_path);
/* The arrays belong to the library and stay valid until the next call with the same `ios`. */
LITE_API int LITE_get_model_io_info_by_path(const char* model_path, const LiteConfig config, LiteNetworkIO* ios);
LITE_API int LITE_get_model_io_info_by_memory(const void* model_mem, size_t size, const LiteConfig config,
                                              LiteNetworkIO* ios);
LITE_API int LITE_extra_configure(LiteNetwork network, LiteExtraConfig extra_config);

#ifdef __cplusplus
}
#endif
#endif
