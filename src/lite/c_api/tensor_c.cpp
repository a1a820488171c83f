#include "lite-c/tensor_c.h"

#include "lite/c_api/handles.h"
#include "lite/tensor_impl.h"

using namespace lite;

const LiteLayout default_layout = {{0, 0, 0, 0, 0, 0, 0}, 0, LITE_FLOAT};
const LiteTensorDesc default_desc = {0, {{0, 0, 0, 0, 0, 0, 0}, 0, LITE_FLOAT}, LITE_CPU, 0};

int LITE_make_tensor(const LiteTensorDesc d, LiteTensor* tensor) {
  return c_guarded([&] {
    not_null(tensor, "tensor");
    *tensor = add_tensor(std::make_shared<Tensor>(d.device_id, d.device_type, to_cpp(d.layout), d.is_pinned_host != 0));
  });
}
int LITE_destroy_tensor(LiteTensor tensor) {
  return c_guarded([&] { remove_tensor(tensor); });
}
int LITE_set_tensor_layout(LiteTensor tensor, const LiteLayout layout) {
  return c_guarded([&] { find_tensor(tensor)->set_layout(to_cpp(layout)); });
}
int LITE_reset_tensor_memory(LiteTensor tensor, void* data, size_t bytes) {
  return c_guarded([&] { find_tensor(tensor)->reset(data, bytes); });
}
int LITE_reset_tensor(LiteTensor tensor, const LiteLayout layout, void* data) {
  return c_guarded([&] { find_tensor(tensor)->reset(data, to_cpp(layout)); });
}
int LITE_tensor_reshape(LiteTensor tensor, const int* shape, int size) {
  return c_guarded([&] {
    auto t = find_tensor(tensor);
    not_null(shape, "shape");
    MGE_CHECK(size >= 0 && size <= LAYOUT_MAX_DIM, Value, "lite: reshape takes 1 to {} dimensions; got {}.",
              LAYOUT_MAX_DIM, size);
    t->reshape({shape, shape + size});
  });
}
int LITE_tensor_slice(const LiteTensor tensor, const size_t* start, const size_t* end, const size_t* step, size_t size,
                      LiteTensor* slice_tensor) {
  return c_guarded([&] {
    auto t = find_tensor(tensor);
    not_null(start, "start");
    not_null(end, "end");
    not_null(slice_tensor, "slice_tensor");
    MGE_CHECK(size <= LAYOUT_MAX_DIM, Value, "lite: a slice of {} axes; a tensor has at most {}.", size,
              LAYOUT_MAX_DIM);
    std::vector<size_t> by = step ? std::vector<size_t>(step, step + size) : std::vector<size_t>();
    *slice_tensor = add_tensor(t->slice({start, start + size}, {end, end + size}, by));
  });
}
int LITE_tensor_fill_zero(LiteTensor tensor) {
  return c_guarded([&] { find_tensor(tensor)->fill_zero(); });
}
int LITE_tensor_copy(LiteTensor dst, const LiteTensor src) {
  return c_guarded([&] { find_tensor(dst)->copy_from(*find_tensor(src)); });
}
int LITE_tensor_share_memory_with(LiteTensor dst, const LiteTensor src) {
  return c_guarded([&] { find_tensor(dst)->share_memory_with(*find_tensor(src)); });
}
int LITE_get_tensor_memory(const LiteTensor tensor, void** data) {
  return c_guarded([&] { *not_null(data, "data") = find_tensor(tensor)->get_memory_ptr(); });
}
int LITE_get_tensor_memory_with_index(const LiteTensor tensor, const size_t* index, size_t size, void** data) {
  return c_guarded([&] {
    auto t = find_tensor(tensor);
    MGE_CHECK(size <= LAYOUT_MAX_DIM, Value, "lite: an index of {} axes; a tensor has at most {}.", size,
              LAYOUT_MAX_DIM);
    not_null(index, "index");
    *not_null(data, "data") = t->get_memory_ptr({index, index + size});
  });
}
int LITE_get_tensor_total_size_in_byte(const LiteTensor tensor, size_t* size) {
  return c_guarded([&] { *not_null(size, "size") = find_tensor(tensor)->get_tensor_total_size_in_byte(); });
}
int LITE_get_tensor_layout(const LiteTensor tensor, LiteLayout* layout) {
  return c_guarded([&] { *not_null(layout, "layout") = to_c(find_tensor(tensor)->get_layout()); });
}
int LITE_get_tensor_device_type(const LiteTensor tensor, LiteDeviceType* type) {
  return c_guarded([&] { *not_null(type, "device_type") = find_tensor(tensor)->get_device_type(); });
}
int LITE_get_tensor_device_id(const LiteTensor tensor, int* id) {
  return c_guarded([&] { *not_null(id, "device_id") = find_tensor(tensor)->get_device_id(); });
}
int LITE_is_pinned_host(const LiteTensor tensor, int* pinned) {
  return c_guarded([&] { *not_null(pinned, "is_pinned_host") = find_tensor(tensor)->is_pinned_host(); });
}
int LITE_is_memory_continue(const LiteTensor tensor, int* is_continue) {
  return c_guarded([&] { *not_null(is_continue, "is_continue") = find_tensor(tensor)->is_continue_memory(); });
}
int LITE_tensor_concat(LiteTensor* tensors, int n, int dim, LiteDeviceType device, int device_id, LiteTensor* result) {
  return c_guarded([&] {
    not_null(tensors, "tensors");
    not_null(result, "result_tensor");
    std::vector<std::shared_ptr<Tensor>> keep;
    std::vector<const Tensor*> list;
    for (int i = 0; i < n; ++i) {
      keep.push_back(find_tensor(tensors[i]));
      list.push_back(keep.back().get());
    }
    *result = add_tensor(concat_tensors(list, dim, device, device_id));
  });
}
