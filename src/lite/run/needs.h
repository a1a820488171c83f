// What models need of a runtime, found by loading and running them: the list that MGE_OPS takes
// (cmake/build_list.cmake), for `mge-lite needs` and tools/trim.
//   std::string list = needs_of({"mobilenet.mge"}, {});
#pragma once
#include <span>
#include <string>

#include "lite/network.h"

namespace lite {

/// Test cases of the files are run, zeros where there are none. Everything that the process has looked up counts, so
/// a process asks once.
std::string needs_of(std::span<const std::string> paths, const Config& config);

}  // namespace lite
