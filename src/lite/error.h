// The edge of the room: inside, mge::Error; to C++ callers, lite::Error; to C callers, -1 and a text kept per thread.
#pragma once
#include <string>
#include <type_traits>
#if defined(__GLIBC__) && defined(__GLIBCXX__)
#include <cxxabi.h>
#include <unistd.h>
#endif

#include "base/error.h"
#include "lite/tensor.h"

// Of what lies inside a class that liblite.so shows, and is not to be seen.
#ifdef _WIN32
#define LITE_HIDDEN
#else
#define LITE_HIDDEN __attribute__((visibility("hidden")))
#endif

namespace lite {

/// Call inside a catch block: the text of whatever is in flight.
std::string current_error_text();

/// Call inside a catch block: whatever is in flight goes on as lite::Error.
[[noreturn]] void rethrow_as_error();

/// Every public C++ function runs its body through this.
template <class F>
auto guarded(F&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    rethrow_as_error();
  }
}

/// Around a callback of the program. A thread that is ended inside of one, as Python ends those that want to run when
/// the interpreter is gone, is unwound, which this library does not survive: it stays where it is and goes with the
/// process.
template <class F>
auto outside(F&& callback) -> decltype(callback()) {
#if defined(__GLIBC__) && defined(__GLIBCXX__)
  try {
    return callback();
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
#else
  return callback();
#endif
}

/// For C functions, inside a catch block: what is in flight becomes this thread's last error, also without memory.
void set_last_error() noexcept;
template <class F>
int c_guarded(F&& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    set_last_error();
    return -1;
  }
}

}  // namespace lite
