// The server of the store: one thread, which sleeps in poll.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "dist/store.h"
#include "dist/wire.h"

namespace mge::dist {
namespace {

constexpr auto kHelloTime = std::chrono::seconds(10);  // for a connection to say the token
constexpr size_t kMaxStrangers = 256;                  // connections that have not yet

// Takes as long for any wrong token.
bool same(const std::string& a, const std::string& b) {
  unsigned char diff = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) diff |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return diff == 0;
}

struct Connection {
  bool known = false;  // has said the token
  Clock::time_point since = Clock::now();
  std::string in, out;
  // A question for keys that are not there yet.
  bool waits = false, removes = false;
  Clock::time_point until;
  std::vector<std::string> keys;
};

}  // namespace

struct StoreServer::Loop {
  std::string token;
  int listener = -1, wake = -1, owner = getpid();
  std::thread thread;
  std::unordered_map<int, Connection> all;
  std::unordered_map<std::string, std::string> table;
  std::unordered_map<std::string, uint64_t> counters;  // of signed numbers, whose sums may go round

  void reply(Connection& c, const std::string& bytes) {
    const auto n = static_cast<uint32_t>(bytes.size());
    c.out.append(reinterpret_cast<const char*>(&n), sizeof n);
    c.out += bytes;
  }
  // Answers a question for keys if it can.
  bool answer(Connection& c) {
    for (size_t i = 0; i < c.keys.size(); ++i) {
      auto at = table.find(c.keys[i]);
      if (at == table.end()) continue;
      std::string bytes;
      put_u64(bytes, i);
      put_string(bytes, at->second);
      reply(c, bytes);
      if (c.removes) table.erase(at);
      c.waits = false;
      return true;
    }
    return false;
  }
  void handle(Connection& c, const std::string& frame) {
    if (!c.known) {
      MGE_CHECK(same(frame, token), Env, "a stranger");
      c.known = true;
      return reply(c, kWelcome);
    }
    MGE_CHECK(!frame.empty() && !c.waits, Env, "no question");
    const std::string body = frame.substr(1);
    Reader r(body);
    switch (frame[0]) {
      case 'S': {
        const std::string key = r.string();
        table[key] = r.string();
        reply(c, "1");
        for (auto& [fd, other] : all)
          if (other.waits) answer(other);
        return;
      }
      case 'G': {
        const Millis time(std::min<uint64_t>(r.u64(), 1'000'000'000));
        c.removes = r.u64() != 0;
        c.keys.clear();
        for (uint64_t n = r.u64(); n; --n) c.keys.push_back(r.string());
        if (answer(c)) return;
        if (time.count() == 0) return reply(c, {});
        c.waits = true;
        c.until = Clock::now() + time;
        return;
      }
      case 'A': {
        const std::string key = r.string();
        const uint64_t n = r.u64();
        if (table.count(key)) return reply(c, {});
        std::string bytes;
        put_u64(bytes, counters[key] += n);
        return reply(c, bytes);
      }
      case 'D': {
        const std::string key = r.string();
        return reply(c, table.erase(key) + counters.erase(key) ? "1" : "0");
      }
      default:
        MGE_FAIL_ENV("no question");
    }
  }

  // False: the connection is over.
  bool read(int fd, Connection& c) {
    char bytes[65536];
    for (;;) {
      const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
      if (n == 0) return false;
      if (n < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        if (errno == EINTR) continue;
        return false;
      }
      c.in.append(bytes, static_cast<size_t>(n));
      if (!c.known && c.in.size() > kMaxHello) return false;
    }
    try {
      uint32_t n = 0;
      while (c.in.size() >= sizeof n) {
        std::memcpy(&n, c.in.data(), sizeof n);
        if (n > (c.known ? kMaxFrame : kMaxHello)) return false;
        if (c.in.size() < sizeof n + n) break;
        const std::string frame = c.in.substr(sizeof n, n);
        c.in.erase(0, sizeof n + n);
        handle(c, frame);
      }
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }
  static bool write(int fd, Connection& c) {
    while (!c.out.empty()) {
      const ssize_t n = ::send(fd, c.out.data(), c.out.size(), MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      c.out.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

  void greet() {
    for (;;) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      size_t strangers = 0;
      for (auto& [other, c] : all) strangers += !c.known;
      if (strangers >= kMaxStrangers) {
        ::close(fd);
        continue;
      }
      all.emplace(own_fd(fd), Connection{});
    }
  }

  void run() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.clear();
      polled.push_back({wake, POLLIN, 0});
      polled.push_back({listener, POLLIN, 0});
      auto next = Clock::time_point::max();
      for (auto& [fd, c] : all) {
        polled.push_back({fd, static_cast<short>(POLLIN | (c.out.empty() ? 0 : POLLOUT)), 0});
        if (c.waits) next = std::min(next, c.until);
        if (!c.known) next = std::min(next, c.since + kHelloTime);
      }
      int time = -1;
      if (next != Clock::time_point::max())
        time = static_cast<int>(
            std::max<int64_t>(0, std::chrono::duration_cast<Millis>(next - Clock::now() + Millis(1)).count()));
      if (poll(polled.data(), polled.size(), time) < 0 && errno != EINTR) return;
      if (polled[0].revents) return;
      if (polled[1].revents) greet();
      const auto now = Clock::now();
      for (size_t i = 2; i < polled.size(); ++i) {
        const int fd = polled[i].fd;
        auto at = all.find(fd);
        if (at == all.end()) continue;
        Connection& c = at->second;
        bool good = true;
        if (polled[i].revents) good = read(fd, c);
        if (c.waits && now >= c.until) {
          c.waits = false;
          reply(c, {});
        }
        if (!c.known && now >= c.since + kHelloTime) good = false;
        if (good) continue;
        close_fd(fd);
        all.erase(at);
      }
      for (auto it = all.begin(); it != all.end();) {  // answers, also to those who waited for somebody's key
        if (write(it->first, it->second)) {
          ++it;
          continue;
        }
        close_fd(it->first);
        it = all.erase(it);
      }
    }
  }
};

StoreServer::StoreServer(const std::string& host, int port, std::string token)
    : host_(host), port_(port), loop_(std::make_unique<Loop>()) {
  MGE_CHECK(token.size() < kMaxHello, Value, "store: the token is too long; {} bytes.", token.size());
  loop_->token = std::move(token);
  loop_->listener = listen_on(host, &port_);
  loop_->wake = own_fd(eventfd(0, EFD_CLOEXEC));
  loop_->thread = std::thread([l = loop_.get()] { l->run(); });
}

void StoreServer::close() {
  if (!loop_) return;
  if (loop_->owner != getpid()) {  // the thread and the connections are the parent's
    loop_->thread.detach();
    (void)loop_.release();
    return;
  }
  const uint64_t one = 1;
  (void)!::write(loop_->wake, &one, sizeof one);
  loop_->thread.join();
  for (auto& [fd, c] : loop_->all) close_fd(fd);
  close_fd(loop_->listener);
  close_fd(loop_->wake);
  loop_.reset();
}
StoreServer::~StoreServer() { close(); }

}  // namespace mge::dist
