// A model file of MegEngine as bytes. Values lie at multiples of 64 bytes in the second format: its own runtime uses
// them where they are.
#pragma once
#include "serial/mgb/file.h"

namespace mge::serial::mgb {

/// The format that `f.format` says, 1 (MGBC) or 2. Vars are numbered as the operators make them.
std::vector<uint8_t> encode(const File& f);
/// The graph with test cases behind it.
std::vector<uint8_t> wrap_cases(const std::vector<uint8_t>& main, std::span<const std::vector<uint8_t>> cases);

}  // namespace mge::serial::mgb
