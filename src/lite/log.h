// Log lines to stderr, at or above the level set by set_log_level (ERROR at first).
#pragma once
#include <string_view>

#include "lite/common_enum_c.h"

namespace lite {

void log(LiteLogLevel level, std::string_view text);

}  // namespace lite
