// Sockets of the store: addresses, frames of a length and bytes, waiting with a deadline.
#pragma once
#include <string>

#include "dist/transport.h"

namespace mge::dist {

constexpr const char* kWelcome = "megengine store 1";
constexpr uint32_t kMaxFrame = 256u << 20;
constexpr uint32_t kMaxHello = 4096;

/// A forked child has no use for the parent's connections, and its copies would hide that the parent has ended: fds
/// registered here are closed in the child.
int own_fd(int fd);
void close_fd(int fd);

/// A listening socket; sets `port` to what it got.
/// Owned, like what connect_to returns.
int listen_on(const std::string& host, int* port);
/// -1 when nobody answers there (yet); an Env error for a name that means nothing.
int connect_to(const std::string& host, int port, Clock::time_point deadline);
/// Whole, or an Env error saying what went wrong: `who` begins it.
void send_frame(int fd, const std::string& bytes, Clock::time_point deadline, const char* who);
std::string recv_frame(int fd, Clock::time_point deadline, const char* who);

// Numbers and strings inside of frames.
void put_u64(std::string& to, uint64_t v);
void put_string(std::string& to, const std::string& s);
class Reader {
 public:
  explicit Reader(const std::string& s) : s_(s) {}
  uint64_t u64();
  std::string string();
  bool done() const { return at_ == s_.size(); }

 private:
  const char* take(size_t n);
  const std::string& s_;
  size_t at_ = 0;
};

}  // namespace mge::dist
