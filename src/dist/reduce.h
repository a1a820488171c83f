// Adding up what ranks hold, element by element. Half types are added in float32 and rounded after each step.
#pragma once
#include "core/dtype.h"
#include "dist/transport.h"

namespace mge::dist {

enum class Mode : uint32_t { None, Sum, Prod, Max, Min };
Mode parse_mode(std::string_view name);
const char* mode_name(Mode m);
Combine combine_of(Mode m, DType t);

}  // namespace mge::dist
