/* C API, tensors. A handle made here is freed by LITE_destroy_tensor; one got from a network belongs to it. */
#ifndef LITE_C_TENSOR_C_H
#define LITE_C_TENSOR_C_H

#include <stddef.h>

#include "lite/common_enum_c.h"
#include "lite/macro.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAYOUT_MAX_DIM (7)

typedef struct LiteLayout {
  size_t shapes[LAYOUT_MAX_DIM];
  size_t ndim; /* 0: not set; a scalar of the graph is {1} */
  LiteDataType data_type;
} LiteLayout;

typedef struct LiteTensorDesc {
  int is_pinned_host;
  LiteLayout layout;
  LiteDeviceType device_type;
  int device_id;
} LiteTensorDesc;

typedef void* LiteTensor;

extern LITE_API const LiteLayout default_layout;
extern LITE_API const LiteTensorDesc default_desc;

LITE_API int LITE_make_tensor(const LiteTensorDesc tensor_describe, LiteTensor* tensor);
LITE_API int LITE_destroy_tensor(LiteTensor tensor);
LITE_API int LITE_set_tensor_layout(LiteTensor tensor, const LiteLayout layout);
/* The memory stays the caller's and must outlive its use. */
LITE_API int LITE_reset_tensor_memory(LiteTensor tensor, void* prepared_data, size_t data_length_in_byte);
LITE_API int LITE_reset_tensor(LiteTensor tensor, const LiteLayout layout, void* prepared_data);
LITE_API int LITE_tensor_reshape(LiteTensor tensor, const int* shape, int size);
/* step may be NULL. */
LITE_API int LITE_tensor_slice(const LiteTensor tensor, const size_t* start, const size_t* end, const size_t* step,
                               size_t size, LiteTensor* slice_tensor);
LITE_API int LITE_tensor_fill_zero(LiteTensor tensor);
LITE_API int LITE_tensor_copy(LiteTensor dst_tensor, const LiteTensor src_tensor);
LITE_API int LITE_tensor_share_memory_with(LiteTensor dst_tensor, const LiteTensor src_tensor);
LITE_API int LITE_get_tensor_memory(const LiteTensor tensor, void** data);
LITE_API int LITE_get_tensor_memory_with_index(const LiteTensor tensor, const size_t* index, size_t size, void** data);
LITE_API int LITE_get_tensor_total_size_in_byte(const LiteTensor tensor, size_t* size);
LITE_API int LITE_get_tensor_layout(const LiteTensor tensor, LiteLayout* layout);
LITE_API int LITE_get_tensor_device_type(const LiteTensor tensor, LiteDeviceType* device_type);
LITE_API int LITE_get_tensor_device_id(const LiteTensor tensor, int* device_id);
LITE_API int LITE_is_pinned_host(const LiteTensor tensor, int* is_pinned_host);
LITE_API int LITE_is_memory_continue(const LiteTensor tensor, int* is_continue);
LITE_API int LITE_tensor_concat(LiteTensor* tensors, int nr_tensor, int dim, LiteDeviceType dst_device, int device_id,
                                LiteTensor* result_tensor);

#ifdef __cplusplus
}
#endif
#endif
