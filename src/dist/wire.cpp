#include "dist/wire.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "core/backend.h"

namespace mge::dist {
namespace {

std::shared_ptr<addrinfo> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int bad = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  MGE_CHECK(!bad, Env, "store: cannot find the host '{}': {}.", host, gai_strerror(bad));
  return {found, freeaddrinfo};
}

// True when the socket is ready for `events`; Ctrl-C is heard meanwhile.
bool wait_ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<Millis>(deadline - Clock::now()).count();
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::min<int64_t>(std::max<int64_t>(left, 0), kPatience.count())));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // the call that follows says what is wrong
    if (left <= 0) return false;
    if (wait_hooks().check) wait_hooks().check();
  }
}

}  // namespace

namespace {
constexpr size_t kOwned = 4096;
std::atomic<int> g_owned[kOwned];  // fd + 1; 0: free
}  // namespace

int own_fd(int fd) {
  static const int watched = pthread_atfork(nullptr, nullptr, [] {
    for (auto& slot : g_owned)
      if (const int held = slot.exchange(0)) ::close(held - 1);
  });
  (void)watched;
  for (auto& slot : g_owned) {
    int none = 0;
    if (slot.compare_exchange_strong(none, fd + 1)) break;
  }
  return fd;
}
void close_fd(int fd) {
  if (fd < 0) return;
  for (auto& slot : g_owned) {
    int held = fd + 1;
    if (slot.compare_exchange_strong(held, 0)) {
      ::close(fd);
      return;
    }
  }
}

int listen_on(const std::string& host, int* port) {
  MGE_CHECK(*port >= 0 && *port < 65536, Value, "store: a port lies in 0 .. 65535; got {}.", *port);
  auto at = resolve(host, *port, AI_PASSIVE);
  std::string why = "no address";
  for (addrinfo* a = at.get(); a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a port in TIME_WAIT; one in use stays refused
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) {
      sockaddr_storage got{};
      socklen_t size = sizeof got;
      getsockname(fd, reinterpret_cast<sockaddr*>(&got), &size);
      *port = ntohs(got.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(got).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(got).sin_port);
      return own_fd(fd);
    }
    why = errno == EADDRINUSE ? "it is in use" : std::strerror(errno);
    ::close(fd);
  }
  MGE_FAIL_ENV("store: cannot serve on {}:{}: {}. Take another port, or 0 for one that is free.", host, *port, why);
}

int connect_to(const std::string& host, int port, Clock::time_point deadline) {
  auto at = resolve(host, port, 0);
  for (addrinfo* a = at.get(); a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    int bad = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (bad == EINPROGRESS) {
      socklen_t size = sizeof bad;
      bad = wait_ready(fd, POLLOUT, deadline) ? 0 : ETIMEDOUT;
      if (!bad) getsockopt(fd, SOL_SOCKET, SO_ERROR, &bad, &size);
    }
    if (!bad) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return own_fd(fd);
    }
    ::close(fd);
  }
  return -1;
}

namespace {
void move_bytes(int fd, char* data, size_t n, bool sending, Clock::time_point deadline, const char* who) {
  while (n) {
    const ssize_t did = sending ? ::send(fd, data, n, MSG_NOSIGNAL) : ::recv(fd, data, n, 0);
    if (did > 0) {
      data += did;
      n -= static_cast<size_t>(did);
      continue;
    }
    MGE_CHECK(did < 0, Env, "{}: the server closed the connection. It ended, or the token is not the server's.", who);
    if (errno == EINTR) continue;
    MGE_CHECK(errno == EAGAIN || errno == EWOULDBLOCK, Env, "{}: the connection broke: {}.", who, std::strerror(errno));
    MGE_CHECK(wait_ready(fd, sending ? POLLOUT : POLLIN, deadline), Env, "{}: no answer from the server in time.", who);
  }
}
}  // namespace

void send_frame(int fd, const std::string& bytes, Clock::time_point deadline, const char* who) {
  const auto n = static_cast<uint32_t>(bytes.size());
  MGE_CHECK(bytes.size() <= kMaxFrame, Value, "{}: a value may have {} bytes at most; got {}.", who, kMaxFrame,
            bytes.size());
  std::string frame(reinterpret_cast<const char*>(&n), sizeof n);
  frame += bytes;
  move_bytes(fd, frame.data(), frame.size(), true, deadline, who);
}

std::string recv_frame(int fd, Clock::time_point deadline, const char* who) {
  uint32_t n = 0;
  move_bytes(fd, reinterpret_cast<char*>(&n), sizeof n, false, deadline, who);
  MGE_CHECK(n <= kMaxFrame, Env, "{}: what answers is no store.", who);
  std::string bytes(n, '\0');
  move_bytes(fd, bytes.data(), n, false, deadline, who);
  return bytes;
}

void put_u64(std::string& to, uint64_t v) { to.append(reinterpret_cast<const char*>(&v), sizeof v); }
void put_string(std::string& to, const std::string& s) {
  put_u64(to, s.size());
  to += s;
}
const char* Reader::take(size_t n) {
  MGE_CHECK(n <= s_.size() - at_, Env, "store: a frame is too short.");
  at_ += n;
  return s_.data() + at_ - n;
}
uint64_t Reader::u64() {
  uint64_t v;
  std::memcpy(&v, take(sizeof v), sizeof v);
  return v;
}
std::string Reader::string() {
  const uint64_t n = u64();
  const char* p = take(n);
  return {p, n};
}

}  // namespace mge::dist
