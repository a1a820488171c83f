// For AddressSanitizer: memory that nobody owns now, or does again. Nothing in other builds.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace mge {

inline void poison_memory([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes, [[maybe_unused]] bool on) {
#if defined(__SANITIZE_ADDRESS__)
  if (on)
    ASAN_POISON_MEMORY_REGION(p, bytes);
  else
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
#endif
}

}  // namespace mge
