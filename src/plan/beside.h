// Instructions that act on a domain (a process group) go on beside those that follow, where somebody runs them: eager
// execution, on the thread of the domain. Without that, as in Lite, they run in their place.
#pragma once
#include <functional>
#include <string>

namespace mge {

/// Queues `fn` behind what the domain has; what it returns waits until that is done, and throws what it threw.
using RunBeside = std::function<void()> (*)(const std::string& domain, std::function<void()> fn);
void set_run_beside(RunBeside run);

}  // namespace mge
