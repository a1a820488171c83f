// The integers behind quantised tensors: 4-bit ones are unpacked to a byte each while a kernel works on them.
//   with_storage(t.dtype, [&](auto storage) { using Q = decltype(storage); Unpacked x(t, true); const Q* q =
//   x.data<Q>(); … });
#pragma once
#include <vector>

#include "kernel/kernel.h"
#include "op/quant/numerics.h"

namespace mge {

template <class F>
void with_storage(DType t, F f) {
  switch (t) {
    case DType::QU8:
    case DType::QU4:
      return f(uint8_t());
    case DType::QI8:
    case DType::QI4:
    case DType::QI1:
      return f(int8_t());
    case DType::QI16:
      return f(int16_t());
    default:
      return f(int32_t());
  }
}

/// The elements of a dense tensor, one per storage type; its own memory where it is not packed.
class Unpacked {
 public:
  explicit Unpacked(const TensorArg& t, bool read = false) : ptr_(t.ptr) {
    if (!is_packed(t.dtype)) return;
    wide_.resize(static_cast<size_t>(t.numel()));
    ptr_ = wide_.data();
    if (read) unpack4(t.dtype, t.ptr, ptr_, t.numel());
  }
  template <class Q>
  Q* data() const {
    return static_cast<Q*>(ptr_);
  }
  void pack(const TensorArg& to) const {
    if (is_packed(to.dtype)) pack4(ptr_, to.ptr, to.numel());
  }

 private:
  void* ptr_;
  std::vector<uint8_t> wide_;
};

/// q - zero point of every element of a dense tensor.
template <class T>
std::vector<T> centred(const TensorArg& t) {
  std::vector<T> out(static_cast<size_t>(t.numel()));
  const quant::Channels channels(t.quant, t.shape);
  with_storage(t.dtype, [&](auto storage) {
    Unpacked wide(t, true);
    const auto* q = wide.data<decltype(storage)>();
    channels.each(0, t.numel(), [&](int64_t b, int64_t e, float, int32_t zero) {
      for (; b < e; ++b) out[static_cast<size_t>(b)] = static_cast<T>(static_cast<int32_t>(q[b]) - zero);
    });
  });
  return out;
}

}  // namespace mge
