// Where processes meet before they know each other: a small table of keys and bytes, served over TCP by one of them.
//   StoreServer server("127.0.0.1", 0, token);              // one process
//   Store store("127.0.0.1", server.port(), token, 10s);    // every process
//   store.set("a", "1");  store.get("a", 10s);              // get waits until somebody has set it
// A connection that does not begin with the token is closed and gets nothing. The token keeps strangers and other jobs
// out; it is sent as it is, so beyond loopback it is as secret as the network.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dist/transport.h"

namespace mge::dist {

class StoreServer {
 public:
  /// Port 0: one that is free. An Env error when the port is taken or the address is not ours.
  StoreServer(const std::string& host, int port, std::string token);
  ~StoreServer();
  int port() const { return port_; }
  const std::string& host() const { return host_; }
  void close();

 private:
  struct Loop;
  std::string host_;
  int port_ = 0;
  std::unique_ptr<Loop> loop_;
};

/// A client. Threads may share it: each call has a connection of its own while it lasts.
class Store {
 public:
  /// Tries until the server is there or the time is over.
  Store(std::string host, int port, std::string token, Millis timeout);
  ~Store();
  const std::string& host() const { return host_; }
  int port() const { return port_; }
  Millis timeout() const { return timeout_; }
  void set_timeout(Millis t) { timeout_ = t; }

  /// `answer`: how long the server may take beyond the time that the question itself allows.
  static constexpr Millis kAnswer{30'000};
  void set(const std::string& key, const std::string& value, Millis answer = kAnswer);
  /// Waits for the key; an Env error that names it when the time is over.
  std::string get(const std::string& key, std::optional<Millis> timeout = {});
  std::optional<std::string> try_get(const std::string& key);
  /// The first of several keys that is there, and its place in the list; none when the time is over.
  std::optional<std::pair<size_t, std::string>> get_any(const std::vector<std::string>& keys, Millis timeout,
                                                        bool remove = false, Millis answer = kAnswer);
  /// get, and then the key is gone.
  std::string pop(const std::string& key, std::optional<Millis> timeout = {});
  int64_t add(const std::string& key, int64_t n);
  bool erase(const std::string& key);
  /// Returns when `size` callers have come to `key`; may be used again.
  void barrier(const std::string& key, int64_t size, std::optional<Millis> timeout = {});
  void close();

 private:
  int connect(Clock::time_point deadline);
  int take(Clock::time_point deadline);
  std::string call(char command, const std::string& body, Millis patience, Millis answer = kAnswer);
  void check_owner() const;

  std::string host_;
  int port_;
  std::string token_;
  Millis timeout_;
  int owner_;  // process
  std::mutex mutex_;
  std::vector<int> idle_;
  bool closed_ = false;
};

}  // namespace mge::dist
