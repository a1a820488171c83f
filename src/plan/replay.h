// Runs of a program as graphs of the device. Addresses are part of such a graph; programs get the same memory again as
// a rule, so a run at addresses that were seen before is recorded, and from then on enqueued in one call.
#pragma once
#include <memory>
#include <vector>

#include "kernel/capture.h"

namespace mge {

class Replays {
 public:
  enum class Plan { Plain, Record, Replay };
  /// What to do about a run at these addresses.
  Plan plan(const std::vector<const void*>& addresses);
  /// Of Plan::Replay.
  const std::shared_ptr<const void>& recording() const { return kept_[current_].recording; }
  /// Of Plan::Record; null: it could not be, and is not tried again.
  void keep(std::shared_ptr<const void> recording);

 private:
  static constexpr size_t kMost = 4;  // sets of addresses: results change places with each other
  struct Kept {
    std::vector<const void*> addresses;
    std::shared_ptr<const void> recording;  // null: seen once
    uint64_t used = 0;
  };
  std::vector<Kept> kept_;
  size_t current_ = 0;
  uint64_t clock_ = 0;
  int recorded_ = 0;
  bool refused_ = false;
};

}  // namespace mge
