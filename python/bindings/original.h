// MegEngine's own model files on this side.
#pragma once
#include "serial/model.h"

namespace mge::py {

/// Of read_model: files of ours and MegEngine's own.
serial::ReadOptions read_options();

}  // namespace mge::py
