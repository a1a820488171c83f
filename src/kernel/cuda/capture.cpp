// Recordings of work as CUDA graphs (kernel/capture.h). Work is recorded on a stream of its own, so that what other
// threads enqueue meanwhile goes where it should.
#include "kernel/capture.h"

#include <cstring>

#include "kernel/cuda/machine.h"

namespace mge::cuda {

Recording::~Recording() {
  if (exec && !Machine::forked()) driver().cuGraphExecDestroy(exec);
}

bool CudaWork::begin_capture() {
  CudaStream& s = queue();
  if (recording_ || s.state.dead) return false;
  if (!s.aside && driver().cuStreamCreate(&s.aside, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return false;
  // Relaxed: the pool may have to ask the driver for memory meanwhile, which is no part of the graph.
  if (driver().cuStreamBeginCapture(s.aside, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return false;
  recording_ = std::make_shared<Recording>();
  raw = s.aside;
  return true;
}

std::shared_ptr<const void> CudaWork::end_capture() {
  CudaStream& s = queue();
  raw = s.raw;
  auto r = std::exchange(recording_, nullptr);
  CUgraph graph = nullptr;
  const CUresult ended = driver().cuStreamEndCapture(s.aside, &graph);
  if (ended != CUDA_SUCCESS || !graph || r->refused) {
    if (graph) driver().cuGraphDestroy(graph);
    return nullptr;
  }
  const CUresult made = driver().cuGraphInstantiate(&r->exec, graph, 0);
  driver().cuGraphDestroy(graph);
  return made == CUDA_SUCCESS ? r : nullptr;
}

void CudaWork::replay(const std::shared_ptr<const void>& recording) {
  CudaStream& s = queue();
  const auto* r = static_cast<const Recording*>(recording.get());
  Machine::get().check(s.state, driver().cuGraphLaunch(r->exec, s.raw), "cuGraphLaunch");
  for (auto& a : r->alarms) alarms_.push_back(a);
  kept_.push_back(recording);
}

const Capture* cuda_capture() {
  static const Capture c{[](Work& w) { return static_cast<CudaWork&>(w).begin_capture(); },
                         [](Work& w) { return static_cast<CudaWork&>(w).end_capture(); },
                         [](Work& w, const std::shared_ptr<const void>& r) { static_cast<CudaWork&>(w).replay(r); }};
  return &c;
}

}  // namespace mge::cuda
