#include "ir/dump.h"

#include <cstdlib>

namespace mge::ir {

bool dump_wanted(std::string_view pass) {
  const char* env = std::getenv("MGE_DUMP_IR");
  if (!env) return false;
  std::string_view s = env;
  if (s == "all") return true;
  if (!s.starts_with("after:")) return false;
  for (s.remove_prefix(6);;) {
    const size_t comma = s.find(',');
    if (s.substr(0, comma) == pass) return true;
    if (comma == std::string_view::npos) return false;
    s.remove_prefix(comma + 1);
  }
}

}  // namespace mge::ir
