// "name=number,name=number", as environment variables give a handful of constants.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>

namespace mge {

/// set(name, number) for each item; the item that is none, or that `set` answers with false, is returned.
template <class F>
std::string each_number(const std::string& text, F set) {
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    at = comma + 1;
    const size_t eq = item.find('=');
    const std::string name = item.substr(0, eq), value = eq == std::string::npos ? "" : item.substr(eq + 1);
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != 0 || !set(name, number)) return item.empty() ? "," : item;
  }
  return "";
}

}  // namespace mge
