#include "dist/store.h"

#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "core/backend.h"
#include "dist/wire.h"

namespace mge::dist {
namespace {

constexpr Millis kPause{50};    // between two tries to connect
constexpr Millis kAgain{1000};  // to connect once more to a server that has been there

Clock::time_point after(Millis t) { return Clock::now() + t; }

}  // namespace

Store::Store(std::string host, int port, std::string token, Millis timeout)
    : host_(std::move(host)), port_(port), token_(std::move(token)), timeout_(timeout), owner_(getpid()) {
  MGE_CHECK(port > 0 && port < 65536, Value, "store: a port lies in 1 .. 65535; got {}.", port);
  idle_.push_back(connect(after(timeout)));
}
Store::~Store() { close(); }

void Store::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (owner_ == getpid())
    for (int fd : idle_) close_fd(fd);
  idle_.clear();
}

void Store::check_owner() const {
  MGE_CHECK(owner_ == getpid(), Env,
            "store: this connection belongs to process {}; a forked child needs its own. Connect after the fork.",
            owner_);
}

int Store::connect(Clock::time_point deadline) {
  int fd = -1;
  while ((fd = connect_to(host_, port_, deadline)) < 0) {
    MGE_CHECK(Clock::now() < deadline, Env,
              "store: nobody serves at {}:{}. Is the process that starts the server running there, and the port the "
              "same for all?",
              host_, port_);
    if (wait_hooks().check) wait_hooks().check();
    std::this_thread::sleep_for(kPause);
  }
  try {
    send_frame(fd, token_, deadline, "store");
    const std::string hello = recv_frame(fd, deadline, "store");
    MGE_CHECK(hello == kWelcome, Env, "store: what answers at {}:{} is not a store of this version.", host_, port_);
  } catch (...) {
    close_fd(fd);
    throw;
  }
  return fd;
}

int Store::take(Clock::time_point deadline) {
  check_owner();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    MGE_CHECK(!closed_, Env, "store: the connection to {}:{} was closed.", host_, port_);
    if (!idle_.empty()) {
      const int fd = idle_.back();
      idle_.pop_back();
      return fd;
    }
  }
  return connect(deadline);
}

std::string Store::call(char command, const std::string& body, Millis patience, Millis answer) {
  const OthersRun others;
  const auto deadline = after(patience + answer);
  const int fd = take(after(std::min(kAgain, answer)));
  try {
    send_frame(fd, command + body, deadline, "store");
    std::string reply = recv_frame(fd, deadline, "store");
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_)
      close_fd(fd);
    else
      idle_.push_back(fd);
    return reply;
  } catch (...) {  // an answer that comes later would be taken for that to the next question
    close_fd(fd);
    throw;
  }
}

void Store::set(const std::string& key, const std::string& value, Millis answer) {
  std::string body;
  put_string(body, key);
  put_string(body, value);
  call('S', body, Millis(0), answer);
}

std::optional<std::pair<size_t, std::string>> Store::get_any(const std::vector<std::string>& keys, Millis timeout,
                                                             bool remove, Millis answer) {
  std::string body;
  put_u64(body, static_cast<uint64_t>(std::max<int64_t>(timeout.count(), 0)));
  put_u64(body, remove);
  put_u64(body, keys.size());
  for (auto& k : keys) put_string(body, k);
  const std::string reply = call('G', body, timeout, answer);
  if (reply.empty()) return {};
  Reader r(reply);
  const size_t which = r.u64();
  return std::pair(which, r.string());
}

std::string Store::get(const std::string& key, std::optional<Millis> timeout) {
  const Millis t = timeout.value_or(timeout_);
  auto found = get_any({key}, t);
  MGE_CHECK(found, Env, "store: nobody has set '{}' within {} s.", key, static_cast<double>(t.count()) / 1000);
  return std::move(found->second);
}
std::optional<std::string> Store::try_get(const std::string& key) {
  auto found = get_any({key}, Millis(0));
  if (!found) return {};
  return std::move(found->second);
}
std::string Store::pop(const std::string& key, std::optional<Millis> timeout) {
  const Millis t = timeout.value_or(timeout_);
  auto found = get_any({key}, t, true);
  MGE_CHECK(found, Env, "store: nobody has set '{}' within {} s.", key, static_cast<double>(t.count()) / 1000);
  return std::move(found->second);
}

int64_t Store::add(const std::string& key, int64_t n) {
  std::string body;
  put_string(body, key);
  put_u64(body, static_cast<uint64_t>(n));
  const std::string reply = call('A', body, Millis(0));
  MGE_CHECK(reply.size() == sizeof(uint64_t), Type, "store: '{}' holds bytes and no counter.", key);
  return static_cast<int64_t>(Reader(reply).u64());
}
bool Store::erase(const std::string& key) {
  std::string body;
  put_string(body, key);
  return call('D', body, Millis(0)) == "1";
}

void Store::barrier(const std::string& key, int64_t size, std::optional<Millis> timeout) {
  MGE_CHECK(size >= 1, Value, "barrier: needs one member at least; got {}.", size);
  const Millis t = timeout.value_or(timeout_);
  const int64_t n = add(key + "/come", 1);
  const std::string open = format("{}/open/{}", key, (n - 1) / size);
  if (n % size == 0) return set(open, "");
  MGE_CHECK(get_any({open}, t), Env, "barrier: {} of {} have come to '{}' within {} s.",
            (add(key + "/come", 0) - 1) % size + 1, size, key, static_cast<double>(t.count()) / 1000);
}

}  // namespace mge::dist
