// One command path, two policies: run inline on the caller's thread, or hand over to the device's worker thread, which
// enqueues work on the device's streams. An op and a compiled program are commands alike.
//   submit(Command{…});   wait(*value);   // throws what the command failed with
#pragma once
#include <chrono>
#include <functional>

#include "core/fork.h"
#include "eager/value.h"

namespace mge {

/// Work of many ops that goes through the executor as one command: a compiled program.
class Job {
 public:
  virtual ~Job() = default;
  /// Fills `out`, one for each output of the command. When it throws, outputs that have memory count as computed.
  /// `explain` words the errors of work that it opens itself.
  virtual void run(std::span<const OpInput> in, std::span<Buffer> out, Work* work, const Explain& explain) = 0;
  virtual std::string describe() const = 0;
  /// Whether it acts on domains (OpDef::domain): then it runs behind what is queued for them, before what follows.
  virtual bool has_effects() const { return false; }
};

struct Command {
  const OpDef* op = nullptr;  // null: `job`
  Attrs attrs;
  SmallVec<ValuePtr, 4> in, out;
  LocId loc = 0;                       // negative: backward of the op at -loc
  const std::string* scope = nullptr;  // what the program said it was doing (core/profile.h)
  std::unique_ptr<Job> job = nullptr;
  SmallVec<int, 4> replaces =
      {};  // of a job, per output: the input whose value it keeps when it is not computed, or -1
};

/// While it lives, other threads of the interpreter run. Between two calls of Python only. A fork waits until it is
/// over, as for an op of a worker: its child must not inherit a lock that is held in a kernel (docs/adr/0010-fork.md).
class LongWork {
 private:
  OthersRun others_;
  ForkWaits waits_;
};

enum class ExecPolicy : int { Inline = 0, Async = 1 };

/// Runs an op, whose inputs are Ready, on the caller's thread without giving up any input: what dispatch does when
/// nothing is queued or traced. An error is thrown on the user's stack, so `loc` is 0 unless it says more than the
/// stack (backward).
void run_inline(const OpDef& op, const AttrsBase* attrs, std::span<Tensor* const> in, std::span<const ValuePtr> out,
                LocId loc = 0);
/// Inline: runs now and throws. Async: queues; a failure is stored in the outputs and thrown by wait or sync. An op
/// that acts on a domain (a process group) is always queued, on a thread of that domain: it waits for other processes,
/// and neither the caller nor a device shall wait with it. Ops of one domain run in the order of their calls.
void submit(Command&& c);
/// Returns when the value is computed; throws an Async error with the cause when it failed.
void wait(Value& v);
/// Whether an op with this output is queued rather than run by the caller.
bool is_queued(const Meta& out);
/// Whether it is run by the caller with nobody looking on: then no Command need be made of it.
bool runs_plainly(const Meta& out);
/// From now on everything that runs is recorded (core/profile.h), until the second call, which lets the queues drain
/// first.
void start_profile();
void stop_profile();
/// Drains all queues and streams; throws the first error nobody has seen yet, and says how many more there were.
void sync();
/// Drains the queues of all workers and leaves errors where they are.
void drain_executor();
/// Who knows the domains looks at a call before it is queued, and refuses it on the user's stack.
void set_domain_check(void (*check)(const OpDef&, const AttrsBase*));
/// Runs `fn` on the thread of a domain, behind what is queued there. What it returns waits, and throws what `fn` threw.
std::function<void()> run_in_domain(const std::string& domain, std::function<void()> fn);
/// Drains the queue of one domain.
void drain_domain(const std::string& domain);
/// False when the queues of domains are not empty after so long.
bool drain_domains(std::chrono::milliseconds patience);

void set_exec_policy(ExecPolicy p);  // drains first
ExecPolicy exec_policy();
/// 2 errors may surface later, 1 as 2 (inference validates all shapes at the call), 0 waits after each op.
void set_async_level(int level);
int async_level();
/// Memory of inputs that die may be reused for outputs. Off only to find a fault.
void set_donation(bool on);
bool donation();
/// Stops the workers after their queues are empty. Called once at interpreter exit; errors that nobody read go to
/// stderr.
void shutdown_executor();
struct Place {
  std::string file, function;
  int line = 0;
};
/// Bindings know the user's stack: `current` names the place now running, `place` says what it is (from any thread).
struct LocationHooks {
  LocId (*current)() = nullptr;
  Place (*place)(LocId) = nullptr;
  const std::string* (*modules)() = nullptr;
};
void set_location_hooks(const LocationHooks& h);
LocId current_location();
Place location_place(LocId loc);  // empty file when unknown
/// The path of modules that are running ("net.conv1"), interned; null: none, or nobody knows.
const std::string* current_modules();
std::string location_text(LocId loc);  // "train.py:31 in step", with " (backward)" when negative, or empty

}  // namespace mge
