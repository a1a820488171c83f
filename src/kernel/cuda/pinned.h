// Memory of the host that devices read and write directly (page-locked), kept for the next use.
#pragma once
#include <cstddef>
#include <utility>

namespace mge::cuda {

class Pinned {
 public:
  Pinned() = default;
  /// Empty when there is no more to be had.
  static Pinned take(size_t bytes);
  ~Pinned();
  Pinned(Pinned&& o) noexcept : p_(std::exchange(o.p_, nullptr)), cls_(o.cls_) {}
  Pinned& operator=(Pinned&& o) noexcept {
    std::swap(p_, o.p_);
    std::swap(cls_, o.cls_);
    return *this;
  }
  explicit operator bool() const { return p_; }
  void* data() const { return p_; }

  static constexpr size_t kLargest = size_t{64} << 20;

 private:
  void* p_ = nullptr;
  int cls_ = 0;
};

}  // namespace mge::cuda
