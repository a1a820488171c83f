// Processes that compute together. Every member makes the same calls in the same order; what one of them does
// otherwise, or that it ended or hangs, every other learns as an error that says who and what, and from then on the
// group has failed: later calls fail at once with the same cause.
//   auto g = ProcessGroup::create({.name = "world", .rank = 0, .size = 2}, store);   // waits for the others
//   g->run({.op = Op::AllReduce, .mode = Mode::Sum, .dtype = DType::F32, .shape = {n}, .in = x, .out = y});
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/shape.h"
#include "dist/reduce.h"
#include "dist/store.h"

namespace mge::dist {

enum class Op : uint32_t {
  None,
  AllReduce,
  Reduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  Gather,
  Scatter,
  AllToAll,
  Send,
  Recv,
  Barrier,
  Exchange,
};
const char* op_name(Op op);

/// One call of this rank. `in` and `out` are contiguous and do not overlap; blocks lie along axis 0.
struct Call {
  Op op;
  Mode mode = Mode::None;
  int root = -1;  // or the peer
  DType dtype = DType::U8;
  Shape shape = {};  // of x; of what is received
  const void* in = nullptr;
  void* out = nullptr;
};

struct GroupOptions {
  std::string name;
  int rank = 0, size = 1;
  std::string backend = "auto";  // shm, gloo, local; auto: shm on one machine, else gloo
  std::optional<Millis> timeout = {};
  std::string host = "127.0.0.1";  // where this rank can be reached by those of other machines
};

/// MGE_DIST_TIMEOUT in seconds, or 300.
Millis default_timeout();
/// Backends of this build that can be asked for.
std::vector<std::string> backends();
/// Where the Gloo leaf lies when it is not beside the library that holds this code.
void set_gloo_file(std::string path);

class ProcessGroup {
 public:
  /// Meets the other members over the store; a group of one needs none. Known by its name in this process until close.
  static std::shared_ptr<ProcessGroup> create(const GroupOptions& o, std::shared_ptr<Store> store);
  /// Null when this process has no such group.
  static std::shared_ptr<ProcessGroup> find(const std::string& name);
  static std::vector<std::string> names();
  /// At exit: peers that wait for this process learn that it ends.
  static void abort_all(const std::string& reason);
  static void leave_all();
  virtual ~ProcessGroup() = default;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Millis timeout() const { return timeout_; }
  virtual const char* backend() const = 0;

  /// Returns when the result is there. From one thread at a time; a second one waits.
  void run(const Call& c);
  void barrier() { run({.op = Op::Barrier}); }
  /// Small values of all ranks, in the order of ranks.
  std::vector<std::string> exchange(const std::string& mine);

  /// An Env error that begins with `op` when the group has failed, or belongs to another process.
  void check_usable(const char* op) const;
  /// Why the group cannot be used any more; empty while it can.
  std::string failure() const;
  /// Fails the group here and for its peers.
  void abort(const std::string& reason);
  /// Leaves the group.
  void close();

 protected:
  ProcessGroup(const GroupOptions& o, std::shared_ptr<Store> store);
  virtual void perform(const Call& c) = 0;
  virtual std::vector<std::string> perform_exchange(const std::string& mine) = 0;
  virtual void leave(bool failed) noexcept = 0;
  /// First what was found out first: by this rank or, if the store knows it, by another.
  void fail_with(const std::string& why);
  template <class F>
  void guarded(const Call& c, F body);
  std::string describe(const struct PeerLost& e, const Call& c);
  std::string cause_elsewhere(Millis patience);

  std::string name_;
  int rank_, size_;
  Millis timeout_;
  std::shared_ptr<Store> store_;
  int owner_;  // process
  uint64_t calls_ = 0;
  std::mutex use_;
  mutable std::mutex mutex_;
  std::string failure_;
};

/// The key under which a group tells why it failed.
std::string failure_key(const std::string& group);

}  // namespace mge::dist
