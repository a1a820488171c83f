#include "base/small_file.h"

#include <cstdio>

namespace mge {

std::string read_small_file(const std::string& path) {
  std::string text;
  std::FILE* f = std::fopen(path.c_str(), "rb");
  if (!f) return text;
  text.resize(1 << 16);
  text.resize(std::fread(text.data(), 1, text.size(), f));
  std::fclose(f);
  return text;
}

std::string first_word(const std::string& text) {
  constexpr const char* kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_first_of(kSpace, begin) - begin);
}

}  // namespace mge
