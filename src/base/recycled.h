// Memory of objects that die as fast as they are made: each thread keeps some for its next ones.
//   struct Tensor : Recycled<Tensor> { ... };
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

namespace mge {

template <class T>
class Recycled {
 public:
  static void* operator new(size_t bytes) {
    Kept& k = kept_;
    if (k.n > 0 && bytes == sizeof(T)) return k.at[--k.n];
    return ::operator new(bytes);
  }
  static void operator delete(void* p, size_t bytes) {
    Kept& k = kept_;
    if (k.n < k.room && bytes == sizeof(T))
      k.at[k.n++] = p;
    else
      free(p, bytes);
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr uint32_t kRoom = 0;  // whoever uses a dead object is to be found
#else
  static constexpr uint32_t kRoom = 32;
#endif
  struct Kept {
    void* at[kRoom + 1];
    uint32_t n, room;
    bool opened;
  };
  // When the thread ends. What dies later on it is not kept.
  struct Emptier {
    ~Emptier() {
      Kept& k = kept_;
      k.room = 0;
      while (k.n > 0) ::operator delete(k.at[--k.n], sizeof(T));
    }
  };
  // The first of a thread opens its list.
  [[gnu::noinline]] static void free(void* p, size_t bytes) {
    Kept& k = kept_;
    if (!k.opened) {
      static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
      static thread_local Emptier at_end;
      [[maybe_unused]] Emptier* made = &at_end;
      k.opened = true;
      k.room = kRoom;
    }
    ::operator delete(p, bytes);
  }
  static constinit inline thread_local Kept kept_{};
};

}  // namespace mge
