// Tensors of the Lite API: host memory with a dtype and a shape.
//   lite::Tensor t(LITE_CPU, {{2, 3}, 2, LITE_FLOAT});
//   float* p = static_cast<float*>(t.get_memory_ptr());
// Methods throw lite::Error with a text that says what was wrong.
#ifndef LITE_TENSOR_H
#define LITE_TENSOR_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lite/common_enum_c.h"
#include "lite/macro.h"

namespace lite {

/// What every function of this API throws.
class LITE_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  ~Error() override;
};

/// dtype and shape. A scalar of the graph is {1}; ndim 0 means "not set".
struct LITE_API Layout {
  static constexpr uint32_t MAXDIM = 7;
  size_t shapes[MAXDIM] = {};
  size_t ndim = 0;
  LiteDataType data_type = LITE_FLOAT;

  size_t get_elem_size() const;
  bool operator==(const Layout& other) const;
};

class LITE_API Tensor {
 public:
  class Impl;

  Tensor();
  explicit Tensor(LiteDeviceType device_type, bool is_pinned_host = false);
  Tensor(LiteDeviceType device_type, const Layout& layout, bool is_pinned_host = false);
  Tensor(int device_id, LiteDeviceType device_type, const Layout& layout = {}, bool is_pinned_host = false);
  Tensor(int device_id, int stream_id, LiteDeviceType device_type, bool is_pinned_host = false);
  explicit Tensor(LiteBackend backend, LiteDeviceType device_type = LITE_CPU, int device_id = 0,
                  const Layout& layout = {}, bool is_pinned_host = false);
  ~Tensor();
  /// Copies are the same tensor; copy_from copies values.
  Tensor(const Tensor&);
  Tensor& operator=(const Tensor&);

  LiteDeviceType get_device_type() const;
  int get_device_id() const;
  Layout get_layout() const;
  bool is_pinned_host() const;
  /// Allocated on first use; stays the same until the layout grows or the memory is replaced.
  void* get_memory_ptr() const;
  void* get_memory_ptr(const std::vector<size_t>& idx) const;
  size_t get_tensor_total_size_in_byte() const;
  bool is_continue_memory() const;

  /// Keeps the memory when the new layout fits into it.
  void set_layout(const Layout& layout);
  /// Uses the caller's memory, which must outlive this tensor and hold the whole layout.
  void reset(void* prepared_data, size_t data_length_in_byte);
  void reset(void* prepared_data, const Layout& layout);
  /// At most one dimension may be -1.
  void reshape(const std::vector<int>& shape);
  /// A view of the leading axes that shares memory: start:end:step as in Python, size_t(-1) is the last element.
  std::shared_ptr<Tensor> slice(const std::vector<size_t>& start, const std::vector<size_t>& end,
                                const std::vector<size_t>& step = {});
  void fill_zero();
  void copy_from(const Tensor& src);
  void share_memory_with(const Tensor& src);
  /// Refreshes cached fields; ours are never stale.
  void update_from_implement();

 private:
  friend struct TensorAccess;
  explicit Tensor(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class LITE_API TensorUtils {
 public:
  /// A new tensor; dtypes and all dimensions but `dim` must agree.
  static std::shared_ptr<Tensor> concat(const std::vector<Tensor>& tensors, int dim,
                                        LiteDeviceType dst_device = LITE_DEVICE_DEFAULT, int dst_device_id = -1);
};

/// A value of one of a few types.
class LITE_API LiteAny {
 public:
  enum Type {
    STRING = 0,
    INT32 = 1,
    UINT32 = 2,
    UINT8 = 3,
    INT8 = 4,
    INT64 = 5,
    UINT64 = 6,
    BOOL = 7,
    VOID_PTR = 8,
    FLOAT = 9,
    NONE_SUPPORT = 10,
  };
  LiteAny() = default;
  template <class T>
  LiteAny(T value) : type_(type_of(&value)) {  // NOLINT: implicit like std::any
    *static_cast<T*>(cast_void_ptr()) = std::move(value);
  }
  LiteAny(const char* text) : type_(STRING), text_(text) {}

  /// Throws when the value is of another type.
  template <class T>
  const T& safe_cast() const {
    if (!try_cast<T>()) throw Error("LiteAny: holds another type than the one asked for.");
    return *static_cast<const T*>(cast_void_ptr());
  }
  template <class T>
  bool try_cast() const {
    return type_ == type_of(static_cast<const T*>(nullptr));
  }
  void* cast_void_ptr() const {
    return type_ == STRING ? const_cast<void*>(static_cast<const void*>(&text_))
                           : const_cast<void*>(static_cast<const void*>(number_));
  }
  Type type() const { return type_; }

 private:  // C++11, as programs with an older standard include this
  static Type type_of(const std::string*) { return STRING; }
  static Type type_of(const int32_t*) { return INT32; }
  static Type type_of(const uint32_t*) { return UINT32; }
  static Type type_of(const uint8_t*) { return UINT8; }
  static Type type_of(const int8_t*) { return INT8; }
  static Type type_of(const int64_t*) { return INT64; }
  static Type type_of(const uint64_t*) { return UINT64; }
  static Type type_of(const bool*) { return BOOL; }
  static Type type_of(void* const*) { return VOID_PTR; }
  static Type type_of(const float*) { return FLOAT; }

  Type type_ = NONE_SUPPORT;
  std::string text_;
  alignas(8) unsigned char number_[8] = {};  // bytes: they may be copied as any of the types
};

}  // namespace lite

#endif
