// The edge of the room: inside, mge::Error; to C++ callers, lite::Error; to C callers, -1 and a text kept per thread.
#pragma once
#include <string>
#include <type_traits>

#include "base/error.h"
#include "lite/tensor.h"

namespace lite {

/// Call inside a catch block: the text of whatever is in flight.
std::string current_error_text();

/// Every public C++ function runs its body through this.
template <class F>
auto guarded(F&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw Error(current_error_text());
  }
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
