// What a lite::Tensor holds: a layout with strides over a block of memory that several tensors may share.
#pragma once
#include <memory>

#include "core/storage.h"
#include "kernel/kernel.h"
#include "lite/tensor.h"

namespace lite {

/// `storage` when it is ours; `ptr` always.
struct Memory {
  mge::RefPtr<mge::Storage> storage;
  void* ptr = nullptr;
  size_t bytes = 0;
  bool from_user() const { return !storage; }
};

class Tensor::Impl {
 public:
  LiteDeviceType device_type = LITE_CPU;
  int device_id = 0, stream_id = 0;
  bool pinned = false;
  Layout layout;
  std::shared_ptr<Memory> memory;       // null until needed
  size_t offset = 0;                    // bytes into memory
  int64_t stride[Layout::MAXDIM] = {};  // in elements

  /// Contiguous at the start of the memory, which is kept when it is large enough.
  void set_layout(const Layout& l);
  /// Allocates (zeroed) when there is no memory yet; throws when the layout is empty.
  void* ptr();
  bool contiguous() const;
  bool whole() const { return offset == 0 && contiguous(); }  // not a view of a part
  void adopt(void* p, size_t bytes);
  void adopt(std::shared_ptr<Memory> m);
  void copy_from(Impl& src);
  /// As kernels see it. The dtype is any of the right size: good for moving bytes.
  mge::TensorArg arg();

 private:
  void make_contiguous();
};

struct TensorAccess {
  static Tensor::Impl& impl(const Tensor& t) { return *t.impl_; }
  static std::shared_ptr<Tensor> make(std::shared_ptr<Tensor::Impl> impl) {
    return std::shared_ptr<Tensor>(new Tensor(std::move(impl)));
  }
};

std::shared_ptr<Tensor> concat_tensors(const std::vector<const Tensor*>& tensors, int dim, LiteDeviceType device,
                                       int device_id);

}  // namespace lite
