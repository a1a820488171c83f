// Intrusive reference counting. RefPtr<T> p = make_ref<T>(...); T derives from RefCounted.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace mge {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) : refs_(0) {}
  RefCounted& operator=(const RefCounted&) { return *this; }
  void retain() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  /// True when the last reference went away and the caller must delete.
  bool release() const { return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  uint32_t ref_count() const { return refs_.load(std::memory_order_acquire); }

 private:
  mutable std::atomic<uint32_t> refs_{0};
};

template <class T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}
  explicit RefPtr(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  RefPtr(const RefPtr& o) : RefPtr(o.p_) {}
  RefPtr(RefPtr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  RefPtr(const RefPtr<U>& o) : RefPtr(static_cast<T*>(o.get())) {}
  ~RefPtr() { reset(); }
  RefPtr& operator=(RefPtr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  void reset() {
    T* p = std::exchange(p_, nullptr);
    if (p && p->release()) delete p;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const RefPtr& o) const { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

template <class T, class... A>
RefPtr<T> make_ref(A&&... a) {
  return RefPtr<T>(new T(std::forward<A>(a)...));
}

}  // namespace mge
