// "name=number,name=number", as environment variables give a handful of constants.
#pragma once
#include <cstdlib>
#include <sstream>
#include <string>

namespace mge {

/// set(name, number) for each item; the item that is none, or that `set` answers with false, is returned.
template <class F>
std::string each_number(const std::string& text, F set) {
  std::stringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t eq = item.find('=');
    const std::string name = item.substr(0, eq), value = eq == std::string::npos ? "" : item.substr(eq + 1);
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != 0 || !set(name, number)) return item.empty() ? "," : item;
  }
  return "";
}

}  // namespace mge
