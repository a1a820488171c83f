#include "lite/error.h"

#include <new>
#include <stdexcept>

#include "lite-c/global_c.h"

namespace lite {
namespace {

struct LastError {
  ErrorCode code = OK;
  std::string text;
  bool no_memory = false;  // not even for a text
};
constexpr const char* kNoMemory = "lite: out of memory.";

LastError& last_error() {
  thread_local LastError e;
  return e;
}

}  // namespace

Error::Error(const std::string& text) : std::runtime_error(text) {}
Error::~Error() = default;

std::string current_error_text() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::length_error&) {
    return "lite: out of memory: something has a size beyond this machine.";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "lite: an exception that is no std::exception came out of a callback.";
  }
}

void rethrow_as_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw Error(current_error_text());
  }
}

void set_last_error() noexcept {
  LastError& e = last_error();
  e.code = LITE_INTERNAL_ERROR;
  e.no_memory = false;
  try {
    e.text = current_error_text();
  } catch (...) {
    e.no_memory = true;
  }
}

}  // namespace lite

ErrorCode LITE_get_last_error_code(void) { return lite::last_error().code; }
const char* LITE_get_last_error(void) {
  const lite::LastError& e = lite::last_error();
  return e.no_memory ? lite::kNoMemory : e.text.c_str();
}
void LITE_clear_last_error(void) {
  lite::LastError& e = lite::last_error();
  e.code = OK;
  e.no_memory = false;
  e.text.clear();
}
