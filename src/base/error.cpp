#include "base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace mge {

void throw_error(ErrorKind kind, fmt::string_view format, fmt::format_args args) {
  throw Error(kind, fmt::vformat(format, args));
}

void throw_internal(const char* file, int line, fmt::string_view format, fmt::format_args args) {
  const char* src = std::strstr(file, "src/");
  throw Error(ErrorKind::Internal, fmt::format("internal error: {} ({}:{}). Please report with MGE_DUMP_IR=all.",
                                               fmt::vformat(format, args), src ? src : file, line));
}

}  // namespace mge
