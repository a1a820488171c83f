// Ranks of one machine share memory: each has an inbox with a ring for every peer, which that peer alone writes. A rank
// that can neither send nor receive sleeps on the bell of its inbox, which peers ring.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "dist/transport.h"

namespace mge::dist {

/// This rank's half of a meeting: the inbox is there and has a name for the others.
class ShmInbox {
 public:
  /// An Env error when the machine has no shared memory for it.
  ShmInbox(int rank, int size);
  ~ShmInbox();
  const std::string& name() const { return name_; }
  /// The others have opened it: from now on nobody else can.
  void hide();

 private:
  friend class ShmTransport;
  int rank_, size_, fd_ = -1;
  std::string name_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

/// `names` of all inboxes, by rank.
std::unique_ptr<Transport> join_shm(std::unique_ptr<ShmInbox> inbox, const std::vector<std::string>& names);
/// Ranks for which this is the same text can share memory.
std::string shm_machine();

}  // namespace mge::dist
