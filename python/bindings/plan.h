// Compiled programs as plain Python data (docs/memory.md says what is in it).
#pragma once
#include <nanobind/nanobind.h>

#include <vector>

#include "plan/program.h"

namespace mge::py {

nanobind::list program_dicts(const std::vector<RefPtr<Program>>& programs);

}  // namespace mge::py
