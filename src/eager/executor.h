// One command path, two policies: run inline on the caller's thread, or hand over to the one worker thread.
//   submit(Command{…});   wait(*value);   // throws what the command failed with
#pragma once
#include "eager/value.h"

namespace mge {

struct Command {
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVec<ValuePtr, 4> in, out;
  LocId loc = 0;
};

enum class ExecPolicy : int { Inline = 0, Async = 1 };

/// Runs an op on the caller's thread without giving up any input: what dispatch does when nothing is queued or traced.
void run_inline(const OpDef& op, const AttrsBase* attrs, std::span<Value* const> in, std::span<const ValuePtr> out);
/// Inline: runs now and throws. Async: queues; a failure is stored in the outputs and thrown by wait or sync.
void submit(Command&& c);
/// Returns when the value is Ready; throws an Async error with the cause when it failed.
void wait(Value& v);
/// Drains the queue; throws the first error nobody has seen yet, and says how many more there were.
void sync();
/// Drains the queue and leaves errors where they are.
void drain_executor();

void set_exec_policy(ExecPolicy p);  // drains first
ExecPolicy exec_policy();
/// 2 errors may surface later, 1 as 2 (inference validates all shapes at the call), 0 waits after each op.
void set_async_level(int level);
int async_level();
/// Memory of inputs that die may be reused for outputs. Off only to find a fault.
void set_donation(bool on);
bool donation();
/// True in a child forked after the worker started; using tensors there is refused with a clear error.
bool forked_with_worker();
/// Stops the worker after the queue is empty. Called once at interpreter exit.
void shutdown_executor();

struct Place {
  std::string file, function;
  int line = 0;
};
/// Bindings know the user's stack: `current` names the place now running, `place` says what it is (from any thread).
struct LocationHooks {
  LocId (*current)() = nullptr;
  Place (*place)(LocId) = nullptr;
};
void set_location_hooks(const LocationHooks& h);
LocId current_location();
Place location_place(LocId loc);       // empty file when unknown
std::string location_text(LocId loc);  // "train.py:31 in step", or empty

}  // namespace mge
