#include "base/error.h"

#include <cstring>

namespace mge {

void throw_error(ErrorKind kind, const char* pattern, uint64_t kinds, const FormatValue* values) {
  throw Error(kind, format_values(pattern, kinds, values));
}

void throw_internal(const char* file, int line, const char* pattern, uint64_t kinds, const FormatValue* values) {
  const char* src = std::strstr(file, "src/");
  throw Error(ErrorKind::Internal, format("internal error: {} ({}:{}). Please report with MGE_DUMP_IR=all.",
                                          format_values(pattern, kinds, values), src ? src : file, line));
}

}  // namespace mge
