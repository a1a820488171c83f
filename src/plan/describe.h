// Graphs and programs as JSON that tools read: what there is, where in memory it lies, and how long each instruction of
// the last run took (Program::watch). It is MegEngine's profile format, {"graph_exec", "profiler"} (times in seconds,
// ids as text, ops and variables numbered together), with more beside each op under "extra".
#pragma once
#include <span>
#include <string>

#include "plan/program.h"

namespace mge {

/// The object "graph_exec" of a graph that is not compiled: no memory, ops in their order.
std::string graph_json(const ir::Graph& g);
/// Of programs that run one after the other. Without times where they were not watched.
std::string profile_json(std::span<const RefPtr<Program>> programs);
/// Its object "graph_exec" alone.
std::string graph_exec_json(std::span<const RefPtr<Program>> programs);
/// When which memory is used, over the arenas of all of them: {"chunk", "opr"}, all values as text. Constants lie
/// above.
std::string static_memory_json(std::span<const RefPtr<Program>> programs);

}  // namespace mge
