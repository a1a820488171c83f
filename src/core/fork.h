// Work that a fork waits for, so that its child inherits no lock that is held, no static half made and no table half
// written (docs/adr/0010-fork.md).
//   const ForkWaits here;      around what compiles, loads or computes without the interpreter lock
#pragma once
#include <cstdint>
#include <mutex>

namespace mge {

/// A fork of another thread waits until it ends, or for a second: what takes longer is in a kernel, where no lock is
/// held. It does not begin while a fork is under way, unless this thread is inside of another one.
class ForkWaits {
 public:
  ForkWaits();
  ~ForkWaits();
  ForkWaits(const ForkWaits&) = delete;
  ForkWaits& operator=(const ForkWaits&) = delete;
};

/// A fork takes the mutex first, so that the child finds it free. For one that is held for moments, with no other lock
/// taken meanwhile, and lives as long as the process.
void fork_takes(std::mutex& leaf);

/// How many forks this process is the child of, one after the other, since this was asked first. What an object has
/// noted tells it whether its threads, and whoever had its locks, came along.
uint64_t fork_generation();

}  // namespace mge
