// MegEngine's model files as our graph. Operators go through the rules of src/compat; what those cannot say is an error
// that names every such operator of the file at once. Sizes stay open: the graph takes inputs of other shapes than the
// file names wherever the rules do not depend on numbers.
#pragma once
#include "serial/model.h"

namespace mge::serial::mgb {

/// ReadOptions::foreign: takes bytes that is_original_graph accepts; `opt.evaluate` must be there. With an owner large
/// weights stay where they are, wherever that is a multiple of their element size; others are copied.
LoadedModel read(std::span<const uint8_t> bytes, const std::shared_ptr<const void>& owner, const std::string& who,
                 const ReadOptions& opt);

}  // namespace mge::serial::mgb
