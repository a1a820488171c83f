// --fitting: sets of options tried one after the other; the fastest is told, and packed with the model when asked for.
#pragma once
#include "lite/run/flags.h"

namespace lite {

/// Prints a line for each set that is tried and "the best options:" with the flags to give. Sets that fail, or take
/// longer than ten seconds, are passed over with the reason. 0, or 1 when none ran.
int fit(const Flags& flags);

}  // namespace lite
