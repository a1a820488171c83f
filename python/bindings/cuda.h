// Raw streams of CUDA, for exchange with other frameworks; in a build without CUDA nobody has one.
#pragma once
#include <cstdint>
#include <functional>

#include "core/backend.h"

namespace mge::py {

uintptr_t raw_stream(Stream& stream);
/// What is enqueued on `stream` from now on starts after all that the raw one has now.
void wait_for_raw(Stream& stream, uintptr_t raw);
/// Calls `fn` when all that is enqueued on `stream` now is done.
void call_behind(Stream& stream, std::function<void()> fn);

}  // namespace mge::py
