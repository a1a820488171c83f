// A vector whose first N elements live inside the object. SmallVec<RefPtr<Value>, 4> ins;
#pragma once
#include <cstddef>
#include <initializer_list>
#include <new>
#include <utility>

namespace mge {

template <class T, size_t N>
class SmallVec {
 public:
  using value_type = T;
  SmallVec() = default;
  explicit SmallVec(size_t n, const T& v = T()) { resize(n, v); }
  SmallVec(std::initializer_list<T> l) {
    for (auto& v : l) push_back(v);
  }
  template <class It>
  SmallVec(It b, It e) {
    for (; b != e; ++b) push_back(*b);
  }
  SmallVec(const SmallVec& o) {
    reserve(o.size_);
    for (auto& v : o) push_back(v);
  }
  SmallVec(SmallVec&& o) noexcept { steal(o); }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) {
      clear();
      reserve(o.size_);
      for (auto& v : o) push_back(v);
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) {
      destroy();
      steal(o);
    }
    return *this;
  }
  ~SmallVec() { destroy(); }

  void push_back(const T& v) { emplace_back(v); }
  void push_back(T&& v) { emplace_back(std::move(v)); }
  template <class... A>
  T& emplace_back(A&&... a) {
    if (size_ == cap_) {
      T tmp(std::forward<A>(a)...);  // the argument may live inside this vector
      reserve(cap_ * 2);
      return *new (data_ + size_++) T(std::move(tmp));
    }
    return *new (data_ + size_++) T(std::forward<A>(a)...);
  }
  void pop_back() { data_[--size_].~T(); }
  void clear() {
    for (size_t i = 0; i < size_; ++i) data_[i].~T();
    size_ = 0;
  }
  void resize(size_t n, const T& v = T()) {
    while (size_ > n) pop_back();
    if (size_ == n) return;
    T fill(v);  // v may live inside this vector
    reserve(n);
    while (size_ < n) emplace_back(fill);
  }
  void reserve(size_t n) {
    if (n <= cap_) return;
    T* p = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    for (size_t i = 0; i < size_; ++i) {
      new (p + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    free_heap();
    data_ = p;
    cap_ = n;
  }
  void erase_at(size_t i) {
    for (size_t j = i + 1; j < size_; ++j) data_[j - 1] = std::move(data_[j]);
    pop_back();
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  bool operator==(const SmallVec& o) const {
    if (size_ != o.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == o.data_[i])) return false;
    return true;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(buf_); }
  void free_heap() {
    if (data_ != inline_data()) ::operator delete(static_cast<void*>(data_), std::align_val_t(alignof(T)));
  }
  void destroy() {
    clear();
    free_heap();
    data_ = inline_data();
    cap_ = N;
  }
  void steal(SmallVec& o) {
    if (o.data_ != o.inline_data()) {
      data_ = std::exchange(o.data_, o.inline_data());
      size_ = std::exchange(o.size_, 0);
      cap_ = std::exchange(o.cap_, N);
      return;
    }
    for (size_t i = 0; i < o.size_; ++i) new (data_ + i) T(std::move(o.data_[i]));
    size_ = o.size_;
    o.clear();
  }

  alignas(T) unsigned char buf_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0;
  size_t cap_ = N;
};

}  // namespace mge
