// What a kind of device can do, as everything above sees it: pages for the pool, streams that take work in order, and
// the work itself, which is done or has failed some time later. The CPU runs on the thread that calls: its comp nodes
// have no stream, and memory, copies and kernels are there when the call returns.
//   RefPtr<Work> w = cn->queue->open({}, "add", explain);   // a command begins
//   w->call([=] { … });                                     // enqueued, in order
//   w->close();                                             // complete: w->wait_for(…), w->error()
#pragma once
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>

#include "base/error.h"
#include "core/storage.h"

namespace mge {

class Stream;

/// Why a value could not be computed, shared by every value that depends on it.
struct ExecError {
  ErrorKind kind;
  std::string text;                       // op, inputs, cause and the user's line
  mutable std::atomic<bool> seen{false};  // thrown at somebody, so sync need not
  ExecError(ErrorKind k, std::string t) : kind(k), text(std::move(t)) {}
};

/// What one command does on a stream. Memory that it writes holds its value once the work is done.
class Work : public RefCounted {
 public:
  explicit Work(Stream& s) : stream(s) {}
  virtual ~Work() = default;
  Stream& stream;

  /// Enqueues a host function behind all that was enqueued before. An exception fails the work, and what was enqueued
  /// for it and has not begun is dropped.
  virtual void call(std::function<void()> fn) = 0;
  /// Enqueues a copy between memory of the stream's device and that of the host or the same device; both storages stay
  /// alive until it has happened.
  virtual void copy(const RefPtr<Storage>& to, size_t to_offset, const RefPtr<Storage>& from, size_t from_offset,
                    size_t bytes) = 0;
  /// It fails when that work, which is done before what this enqueues from now on, has failed.
  virtual void depend(const RefPtr<Work>& on);
  /// All of it has been enqueued.
  virtual void close() = 0;
  /// False when it is not done after so long. Done includes failed.
  virtual bool wait_for(std::chrono::milliseconds patience) = 0;
  /// Of work that is done: why it failed, or null.
  virtual std::shared_ptr<const ExecError> error() const = 0;
};

/// Makes an error to keep out of what work has thrown; called on the stream's thread.
using Explain = std::function<std::shared_ptr<const ExecError>(std::exception_ptr)>;

/// An ordered queue of work on a device. Streams run beside each other; only `open` orders them.
class Stream {
 public:
  Stream(Device d, int i, bool host_kernels) : device(d), index(i), runs_host_kernels(host_kernels) {}
  virtual ~Stream() = default;
  const Device device;
  const int index;
  const bool runs_host_kernels;  // kernels are host functions that this stream calls (the fake device)

  /// Begins a command named `op` (null: a copy of the framework's own). It starts after all of `after`, which may be of
  /// other streams and devices (null entries are done), and fails like them without running when one has failed.
  virtual RefPtr<Work> open(std::span<Work* const> after, const char* op, Explain explain) = 0;
  /// What is enqueued here from now on starts after all that `other` has now.
  virtual void wait_for_stream(Stream& other) = 0;
  /// Returns when all that is enqueued now is done; failures are not told here.
  virtual void drain() = 0;
  /// The address at which host functions that run here see the device memory `p`.
  virtual void* reach(void* p) const { return p; }
};

/// Closes work at the end of a block, whatever happens in it: work that stays open would hold up its stream.
class OpenWork {
 public:
  explicit OpenWork(RefPtr<Work> w) : w_(std::move(w)) {}
  ~OpenWork() { close(); }
  OpenWork(const OpenWork&) = delete;
  OpenWork& operator=(const OpenWork&) = delete;
  Work* get() const { return w_.get(); }
  Work* operator->() const { return w_.get(); }
  RefPtr<Work> close() {
    if (w_ && !std::exchange(closed_, true)) w_->close();
    return w_;
  }

 private:
  RefPtr<Work> w_;
  bool closed_ = false;
};

/// The devices of one kind.
class Backend {
 public:
  virtual ~Backend() = default;
  /// An Env error that names what is missing when this build or machine has no such devices.
  static Backend& of(DeviceKind kind);
  static bool has(DeviceKind kind);
  /// Once per kind and for good; the CPU's is built in.
  static void install(DeviceKind kind, Backend* backend);
  /// `make` is called when devices of that kind are first asked for; null: there are none, and why.
  static void offer(DeviceKind kind, Backend* (*make)(std::string* why));
  /// Of a kind without devices here: why.
  static std::string missing(DeviceKind kind);

  /// Whether the host may read and write through pointers into this memory.
  virtual bool host_access() const = 0;
  /// A multiple of 2 MiB of pages, aligned to 2 MiB; null when there is no more.
  virtual void* map(Device device, size_t bytes) = 0;
  virtual void unmap(Device device, void* p, size_t bytes) = 0;
  /// Takes the pages of a part of what was mapped, which stays mapped and has new ones when it is used again; false:
  /// cannot.
  virtual bool discard(Device, void*, size_t) { return false; }
  /// For sanitizers: memory that nobody owns now (or does again).
  virtual void poison(void* p, size_t bytes, bool on) = 0;
  /// Null: work is done by the thread that asks for it.
  virtual Stream* stream(Device device, int index) = 0;
  /// Bytes the device has in all, and free for anybody.
  virtual std::pair<size_t, size_t> memory(Device device) const = 0;
  /// Devices there are.
  virtual int count() const = 0;
};

/// What the bindings do around a wait: let go of the interpreter lock, and look for Ctrl-C.
struct WaitHooks {
  void* (*begin)() = nullptr;    // before a wait; its result goes to end
  void (*end)(void*) = nullptr;  // after it
  void (*check)() = nullptr;     // every 50 ms meanwhile, without locks held; may throw to end the wait
};
void set_wait_hooks(const WaitHooks& h);
const WaitHooks& wait_hooks();
constexpr std::chrono::milliseconds kPatience{50};  // between two looks for Ctrl-C

/// While it lives, other threads of the interpreter run.
class OthersRun {
 public:
  OthersRun() : token_(wait_hooks().begin ? wait_hooks().begin() : nullptr) {}
  ~OthersRun() {
    if (wait_hooks().end) wait_hooks().end(token_);
  }
  OthersRun(const OthersRun&) = delete;

 private:
  void* token_;
};
/// For long work of many steps: looks for Ctrl-C when it is time to, and throws what the hook throws.
class Patience {
 public:
  void look() {
    if (std::chrono::steady_clock::now() < next_) return;
    if (wait_hooks().check) wait_hooks().check();
    next_ = std::chrono::steady_clock::now() + kPatience;
  }

 private:
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kPatience;
};

/// An Async error with the text of what failed; marks it as seen.
[[noreturn]] void throw_stored(const std::shared_ptr<const ExecError>& e);
/// Returns when the work is done; throws what it failed with.
void wait_for(Work& w);

/// Whether the host may look at this storage's memory.
bool host_readable(const Storage& s);

}  // namespace mge
