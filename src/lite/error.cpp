#include "lite/error.h"

#include <new>

#include "lite-c/global_c.h"

namespace lite {
namespace {

struct LastError {
  ErrorCode code = OK;
  std::string text;
};
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
    return "lite: out of memory.";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "lite: an exception that is no std::exception came out of a callback.";
  }
}

void set_last_error(const std::string& text) noexcept {
  try {
    last_error() = {LITE_INTERNAL_ERROR, text};
  } catch (...) {  // no memory for the text: the code must do
    last_error().code = LITE_UNKNOWN_ERROR;
  }
}

}  // namespace lite

ErrorCode LITE_get_last_error_code(void) { return lite::last_error().code; }
const char* LITE_get_last_error(void) { return lite::last_error().text.c_str(); }
void LITE_clear_last_error(void) {
  lite::last_error().code = OK;
  lite::last_error().text.clear();
}
