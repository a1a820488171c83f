// Staged regions by rows: what is reduced along the last axes, and all that is computed from it, for a few rows at a
// time, so that a softmax or a normalisation written in single ops reads and writes memory once.
#pragma once
#include "kernel/kernel.h"

namespace mge::interp {

/// Kernel interp_fused_rows of op `fused`.
void register_rows(KernelRegistry& r);

}  // namespace mge::interp
