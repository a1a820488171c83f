// What a lite::Tensor holds: a layout with strides over a block of memory that several tensors may share. Threads may
// share a tensor: each call has it for itself (mutex), and whoever works on its memory holds a reference to that.
#pragma once
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "core/storage.h"
#include "kernel/kernel.h"
#include "lite/error.h"
#include "lite/tensor.h"
#include "lite/waiting.h"

namespace lite {

/// `storage` when it is ours; `ptr` always.
struct Memory {
  mge::RefPtr<mge::Storage> storage;
  void* ptr = nullptr;
  size_t bytes = 0;
  bool from_user() const { return !storage; }
};

struct TensorFields {
  LiteDeviceType device_type = LITE_CPU;
  int device_id = 0, stream_id = 0;
  bool pinned = false;
  Layout layout;
  std::shared_ptr<Memory> memory;       // null until needed
  size_t offset = 0;                    // bytes into memory
  int64_t stride[Layout::MAXDIM] = {};  // in elements
};

class LITE_HIDDEN Tensor::Impl : public TensorFields {
 public:
  Impl() = default;
  Impl(const Impl& o) : TensorFields(o) {}
  Impl& operator=(const Impl&) = delete;

  /// Held by every function of Tensor, and by a network while it runs. Those below do not take it.
  mutable ForkMutex mutex;

  /// Contiguous at the start of the memory, which is kept when it is large enough.
  void set_layout(const Layout& l);
  /// Allocates (zeroed) when there is no memory yet; throws when the layout is empty.
  void* ptr();
  bool contiguous() const;
  bool whole() const { return offset == 0 && contiguous(); }  // not a view of a part
  /// From the first byte to behind the last one.
  std::pair<const char*, const char*> extent();
  void adopt(void* p, size_t bytes);
  void adopt(std::shared_ptr<Memory> m);
  void copy_from(Impl& src);
  /// As kernels see it. The dtype is any of the right size: good for moving bytes.
  mge::TensorArg arg();

 private:
  void make_contiguous();
};

/// Several tensors at once, locked in the order of their addresses so that nobody waits in a ring.
class TensorLocks {
 public:
  using List = mge::SmallVec<Tensor::Impl*, 8>;
  explicit TensorLocks(List tensors) : tensors_(std::move(tensors)) {
    std::sort(tensors_.begin(), tensors_.end());
    try {
      for (; held_ < tensors_.size(); ++held_) tensors_[held_]->mutex.lock();
    } catch (...) {
      unlock();
      throw;
    }
  }
  ~TensorLocks() { unlock(); }
  TensorLocks(const TensorLocks&) = delete;
  TensorLocks& operator=(const TensorLocks&) = delete;

 private:
  void unlock() {
    while (held_) tensors_[--held_]->mutex.unlock();
  }
  List tensors_;
  size_t held_ = 0;
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
