#include "dist/group.h"

#include <unistd.h>

#include <cstdlib>
#include <map>

#include "core/backend.h"
#include "dist/host_group.h"

namespace mge::dist {
namespace {

constexpr const char* kOps[] = {
    "none",        "dist_all_reduce", "dist_reduce",     "dist_broadcast", "dist_all_gather", "dist_reduce_scatter",
    "dist_gather", "dist_scatter",    "dist_all_to_all", "dist_send",      "dist_recv",       "barrier",
    "exchange"};
constexpr Millis kShort{1000};  // for the store to say what it knows, when something has gone wrong already

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<ProcessGroup>> groups;
  static Registry& get() {
    static auto* r = new Registry;
    return *r;
  }
};

std::vector<std::shared_ptr<ProcessGroup>> all_groups() {
  auto& r = Registry::get();
  std::vector<std::shared_ptr<ProcessGroup>> all;
  std::lock_guard<std::mutex> lock(r.mutex);
  for (auto& [name, g] : r.groups) all.push_back(g);
  return all;
}

double seconds(Millis t) { return static_cast<double>(t.count()) / 1000; }

}  // namespace

const char* op_name(Op op) {
  return static_cast<uint32_t>(op) < std::size(kOps) ? kOps[static_cast<uint32_t>(op)] : "?";
}
std::string failure_key(const std::string& group) { return "group/" + group + "/failed"; }

Millis default_timeout() {
  const char* set = std::getenv("MGE_DIST_TIMEOUT");
  if (!set || !*set) return Millis(300'000);
  char* end = nullptr;
  const double s = std::strtod(set, &end);
  MGE_CHECK(*end == 0 && s > 0 && s < 1e8, Value, "MGE_DIST_TIMEOUT: expected seconds above 0; got '{}'.", set);
  return Millis(static_cast<int64_t>(s * 1000));
}

ProcessGroup::ProcessGroup(const GroupOptions& o, std::shared_ptr<Store> store)
    : name_(o.name),
      rank_(o.rank),
      size_(o.size),
      timeout_(o.timeout.value_or(default_timeout())),
      store_(std::move(store)),
      owner_(getpid()) {}

std::shared_ptr<ProcessGroup> ProcessGroup::create(const GroupOptions& o, std::shared_ptr<Store> store) {
  auto& r = Registry::get();
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    MGE_CHECK(!r.groups.count(o.name), Value, "group: this process has one named '{}' already. Close it first.",
              o.name);
  }
  std::shared_ptr<ProcessGroup> g = make_host_group(o, std::move(store));
  std::lock_guard<std::mutex> lock(r.mutex);
  r.groups[o.name] = g;
  return g;
}

std::shared_ptr<ProcessGroup> ProcessGroup::find(const std::string& name) {
  auto& r = Registry::get();
  std::lock_guard<std::mutex> lock(r.mutex);
  auto at = r.groups.find(name);
  if (at == r.groups.end() && name.empty())  // this process alone
    at = r.groups.emplace(name, make_host_group({}, nullptr)).first;
  return at == r.groups.end() ? nullptr : at->second;
}
std::vector<std::string> ProcessGroup::names() {
  auto& r = Registry::get();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<std::string> out;
  for (auto& [name, g] : r.groups)
    if (!name.empty()) out.push_back(name);
  return out;
}
void ProcessGroup::abort_all(const std::string& reason) {
  for (auto& g : all_groups())
    if (g->owner_ == getpid() && g->size_ > 1) g->abort(reason);
}
void ProcessGroup::leave_all() {
  for (auto& g : all_groups()) g->close();
}

void ProcessGroup::check_usable(const char* op) const {
  MGE_CHECK(size_ == 1 || owner_ == getpid(), Env,
            "{}: group '{}' belongs to process {}, and this is a forked child. Make a group after the fork, or start "
            "processes by spawn.",
            op, name_, owner_);
  const std::string why = failure();
  MGE_CHECK(why.empty(), Env, "{}: group '{}' cannot be used any more. {}", op, name_, why);
}

std::string ProcessGroup::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void ProcessGroup::fail_with(const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = why;
  }
  if (owner_ != getpid()) return;
  if (store_) {  // before leaving: who notices that finds the reason
    try {
      if (!store_->get_any({failure_key(name_)}, Millis(0), false, kShort))
        store_->set(failure_key(name_), format("rank {}: {}", rank_, why), kShort);
    } catch (...) {
    }
  }
  leave(true);
}

void ProcessGroup::abort(const std::string& reason) { fail_with(reason); }

void ProcessGroup::close() {
  auto& r = Registry::get();
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    auto at = r.groups.find(name_);
    if (at != r.groups.end() && at->second.get() == this) r.groups.erase(at);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = "It was closed.";
  }
  if (owner_ == getpid()) leave(false);
}

std::string ProcessGroup::cause_elsewhere(Millis patience) {
  if (!store_) return {};
  try {
    if (auto found = store_->get_any({failure_key(name_)}, patience, false, kShort)) return found->second;
  } catch (const Error&) {
    return "the store does not answer either: the process that serves it has ended";
  }
  return {};
}

std::string ProcessGroup::describe(const PeerLost& e, const Call& c) {
  const std::string what = format("{}: rank {} of group '{}'", op_name(c.op), e.peer, name_);
  const std::string here = format("This is rank {} of {}, in call {} of the group", rank_, size_, calls_);
  if (e.kind == PeerLost::Silent)
    return format(
        "{} did not come within {} s: it hangs, or makes other calls. {}. A longer time is given by "
        "MGE_DIST_TIMEOUT.",
        what, seconds(timeout_), here);
  // Another rank may know more: whose leaving we see may itself have left because of a third.
  const std::string cause = cause_elsewhere(e.kind == PeerLost::Died ? Millis(0) : kShort);
  if (e.kind == PeerLost::Died) return format("{} died. {}.{}", what, here, cause.empty() ? "" : " (" + cause + ")");
  if (!cause.empty()) return format("{} left: {} {}.", what, cause, here);
  return format("{} died or left the group{}. {}.", what, e.why.empty() ? "" : " (" + e.why + ")", here);
}

template <class F>
void ProcessGroup::guarded(const Call& c, F body) {
  std::lock_guard<std::mutex> lock(use_);
  check_usable(op_name(c.op));
  try {
    body();
    return;
  } catch (const PeerLost& e) {
    const std::string own = failure();  // an abort from outside ends what waits, too
    fail_with(own.empty() ? describe(e, c) : own);
  } catch (const Error& e) {
    fail_with(e.text());
  } catch (...) {
    fail_with(format("{}: rank {} of group '{}' was interrupted.", op_name(c.op), rank_, name_));
    throw;
  }
  throw Error(ErrorKind::Env, failure());
}

void ProcessGroup::run(const Call& c) {
  guarded(c, [&] { perform(c); });
}
std::vector<std::string> ProcessGroup::exchange(const std::string& mine) {
  std::vector<std::string> out;
  guarded({.op = Op::Exchange}, [&] { out = perform_exchange(mine); });
  return out;
}

}  // namespace mge::dist
