#include "lite/waiting.h"

#include "base/error.h"
#include "core/fork.h"

namespace lite {
namespace {

std::mutex& list_mutex() {
  static auto* m = [] {
    auto* made = new std::mutex;
    mge::fork_takes(*made);
    return made;
  }();
  return *m;
}
Waiting* g_first = nullptr;  // of all that wait; there are never many

}  // namespace

Waiting::Waiting(const Awaited& what) : what_(what), thread_(std::this_thread::get_id()), next_(nullptr) {
  const std::lock_guard lock(list_mutex());
  // Whoever closes a ring is the last of it to come here, and finds the others in the list.
  for (const Awaited* at = &what; at;) {
    const std::thread::id owner = at->owner.load();
    MGE_CHECK(owner != thread_, Assertion,
              "lite: this call would never return: the network is in use by a thread that waits for this one. A "
              "callback of one network uses another, whose callback uses the first; let one of them return before.");
    at = nullptr;
    for (const Waiting* w = g_first; w && owner != std::thread::id(); w = w->next_)
      if (w->thread_ == owner) at = &w->what_;
  }
  next_ = g_first;
  g_first = this;
}

Waiting::~Waiting() {
  const std::lock_guard lock(list_mutex());
  for (Waiting** w = &g_first; *w; w = &(*w)->next_)
    if (*w == this) {
      *w = next_;
      return;
    }
}

void ForkMutex::check_kept(const char* what) const {
  MGE_CHECK(!lost(), Env,
            "lite: another thread was using this {0} when the process was forked, and the child does not have that "
            "thread. Make another {0}, or fork between runs.",
            what);
}

void CallMutex::wait() {
  check_kept("network");
  {
    const Waiting now(*this);
    mutex_.lock();
  }
  took();  // not while the list has it: who owns what it waits for is a ring that others follow for ever
  owner.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

}  // namespace lite
