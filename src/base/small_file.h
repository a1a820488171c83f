// What the kernel says in files of one line or a few, without streams, which are half the size of what asks.
//   std::string type = first_word(read_small_file("/sys/devices/system/cpu/cpu0/cache/index0/type"));
#pragma once
#include <string>

namespace mge {

/// Empty when it cannot be read; at most 64 KiB of it.
std::string read_small_file(const std::string& path);
/// Up to the first white space behind any at its beginning.
std::string first_word(const std::string& text);

}  // namespace mge
