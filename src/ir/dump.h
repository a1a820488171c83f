// Which graphs the environment asks to see: MGE_DUMP_IR=all or after:<pass>[,<pass>...]; pass/pipeline.h prints after
// each pass, plan after assign_layouts.
#pragma once
#include <string_view>

namespace mge::ir {

/// Says nothing of names that no pass has; pipeline.cpp does.
bool dump_wanted(std::string_view pass);

}  // namespace mge::ir
