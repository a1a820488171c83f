// What the examples share: a file's floats, a tensor's values as text, errors as an exit status.
#pragma once
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lite/global.h"
#include "lite/network.h"

inline std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The layout of `x` with as many samples as `bytes` holds.
inline lite::Layout layout_for(const lite::Tensor& x, size_t bytes) {
  lite::Layout layout = x.get_layout();
  if (layout.ndim == 0) throw std::runtime_error("the input is no batch");
  const size_t sample = x.get_tensor_total_size_in_byte() / layout.shapes[0];
  if (bytes == 0 || bytes % sample != 0) throw std::runtime_error("not a whole number of samples in the input file");
  layout.shapes[0] = bytes / sample;
  return layout;
}

/// "logits [2,5]: 0.1 0.2 ...", the first ten values of a float tensor.
inline std::string describe(const std::string& name, const lite::Layout& layout, const void* data) {
  std::string text = name + " [";
  size_t count = 1;
  for (size_t i = 0; i < layout.ndim; ++i) {
    text += (i ? "," : "") + std::to_string(layout.shapes[i]);
    count *= layout.shapes[i];
  }
  text += "]:";
  if (layout.data_type != LITE_FLOAT) return text;
  for (size_t i = 0; i < std::min<size_t>(count, 10); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, " %.9g", static_cast<const float*>(data)[i]);
    text += number;
  }
  return text;
}

/// main() of an example with two arguments; lite::Error is a std::exception.
inline int run_example(int argc, char** argv, const char* usage, void (*body)(const std::string&, const std::string&)) {
  if (argc != 3) {
    int major, minor, patch;
    lite::get_version(major, minor, patch);
    std::fprintf(stderr, "usage: %s (Lite %d.%d.%d)\n", usage, major, minor, patch);
    return 1;
  }
  try {
    body(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(std::string(usage).find(' ')), usage, e.what());
    return 1;
  }
  return 0;
}
