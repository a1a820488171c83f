// Bytes of a model file of MegEngine, checked before they are believed.
#pragma once
#include <deque>
#include <string>

#include "serial/mgb/file.h"

namespace mge::serial::mgb {

/// What a test-case wrapper holds: the graph, then one graph of constants per case. Without a wrapper: one, no cases.
struct Decoded {
  bool wrapped = false;
  bool compressed = false;  // values begin with how they are stored
  File main;
  std::vector<File> cases;
  std::deque<std::vector<uint64_t>> copies;  // of what does not lie at a multiple of 8 bytes
  Bytes aligned(Bytes b);
  uint8_t* room(size_t bytes);  // for what is made while reading
};
/// Env error that starts with `who` when the bytes are damaged. Tensors point into `bytes` or `copies`.
Decoded decode(Bytes bytes, const std::string& who, bool compressed = false);

}  // namespace mge::serial::mgb
