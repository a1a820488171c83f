// Memory from elsewhere than the pool: while a UseMemory object lives, blocks of the host that its thread allocates
// come from its source. Each keeps the source until it is freed, on whatever thread that is.
//   UseMemory use(source);            null: nothing changes
#pragma once
#include <cstddef>
#include <memory>

namespace mge {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null: no memory.
  virtual void* allocate(size_t bytes, size_t align) = 0;
  virtual void free(void* ptr) = 0;
};

class UseMemory {
 public:
  enum OfProcess { kPool };
  explicit UseMemory(std::shared_ptr<MemorySource> source);
  explicit UseMemory(OfProcess);  // for what a thread keeps longer than any network
  ~UseMemory();
  UseMemory(const UseMemory&) = delete;
  UseMemory& operator=(const UseMemory&) = delete;

 private:
  std::shared_ptr<MemorySource> before_;
  bool on_;
};

}  // namespace mge
