#include "plan/replay.h"

namespace mge {

namespace {
constexpr int kMostRecorded = 16;  // of one program: if addresses never settle, recording costs more than it gives
}

Replays::Plan Replays::plan(const std::vector<const void*>& addresses) {
  if (refused_) return Plan::Plain;
  ++clock_;
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (kept_[i].addresses != addresses) continue;
    current_ = i;
    kept_[i].used = clock_;
    return kept_[i].recording ? Plan::Replay : recorded_ < kMostRecorded ? Plan::Record : Plan::Plain;
  }
  if (recorded_ >= kMostRecorded) return Plan::Plain;
  size_t at = kept_.size();
  if (at == kMost) {
    at = 0;
    for (size_t i = 1; i < kept_.size(); ++i)
      if (kept_[i].used < kept_[at].used) at = i;
  } else {
    kept_.emplace_back();
  }
  kept_[at] = {addresses, nullptr, clock_};
  return Plan::Plain;
}

void Replays::keep(std::shared_ptr<const void> recording) {
  refused_ = !recording;
  ++recorded_;
  kept_[current_].recording = std::move(recording);
}

}  // namespace mge
