// Thread-local scratch of the raw kernels: grows, never shrinks, 64-byte aligned.
//
//   float* col = scratch(Scratch::Col, rows * cols);   // valid until this thread asks for the same slot again
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace mge::simd {

// One slot per purpose, so that a kernel calling another one never shares a buffer with it.
enum class Scratch { PackA, PackB, Weight, Planes, Col, Out, Partial, Count };

class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;
  ~ScratchBuffer() { drop(); }

  float* get(int64_t floats) {
    if (floats > size_) grow(floats);
    return data_;
  }

 private:
  void grow(int64_t floats) {
    drop();
    data_ = nullptr;
    size_ = 0;
    const int64_t rounded = (floats + floats / 4 + 1023) / 1024 * 1024;
    data_ = static_cast<float*>(::operator new(static_cast<size_t>(rounded) * sizeof(float), kAlign));
    size_ = rounded;
  }
  void drop() { ::operator delete(data_, kAlign); }
  static constexpr std::align_val_t kAlign{64};
  float* data_ = nullptr;
  int64_t size_ = 0;
};

inline float* scratch(Scratch slot, int64_t floats) {
  thread_local ScratchBuffer buffers[static_cast<int>(Scratch::Count)];
  return buffers[static_cast<int>(slot)].get(floats);
}

}  // namespace mge::simd
