// Ranks for tests: threads of this process, or processes.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "dist/host_group.h"

namespace mge::dist {

inline std::vector<std::string> test_backends() {
  std::vector<std::string> b = {"shm"};
#ifdef MGE_GLOO_FILE
  set_gloo_file(MGE_GLOO_FILE);
  b.push_back("gloo");
#endif
  return b;
}

constexpr const char* kToken = "secret";
constexpr Millis kLong{60'000};

inline std::shared_ptr<Store> connect(int port, Millis timeout = kLong) {
  return std::make_shared<Store>("127.0.0.1", port, kToken, timeout);
}

using Body = std::function<void(ProcessGroup&)>;

/// Every rank is a thread; returns what each threw.
inline std::vector<std::string> in_threads(int size, const std::string& backend, const Body& body,
                                           Millis timeout = kLong) {
  StoreServer server("127.0.0.1", 0, kToken);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        auto g = make_host_group({"test", r, size, backend, timeout}, connect(server.port()));
        body(*g);
        g->close();
      } catch (const Error& e) {
        errors[static_cast<size_t>(r)] = e.text();
      }
    });
  for (auto& t : threads) t.join();
  return errors;
}

/// Every rank is a process, made before this one has threads; returns their exit codes (negative: the signal). `body`
/// gets its rank and a store.
inline std::vector<int> in_processes(int size, const std::function<int(int rank, std::shared_ptr<Store>)>& body) {
  std::vector<pid_t> pids;
  int port_pipe[2];
  EXPECT_EQ(pipe(port_pipe), 0);
  for (int r = 0; r < size; ++r) {
    const pid_t pid = fork();
    if (pid == 0) {
      int port = 0, code = 99;
      if (read(port_pipe[0], &port, sizeof port) != sizeof port) _exit(98);
      try {
        code = body(r, connect(port));
      } catch (const Error& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
      _exit(code);
    }
    pids.push_back(pid);
  }
  StoreServer server("127.0.0.1", 0, kToken);
  for (int r = 0; r < size; ++r) {
    const int port = server.port();
    EXPECT_EQ(write(port_pipe[1], &port, sizeof port), ssize_t{sizeof port});
  }
  std::vector<int> codes;
  for (pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  ::close(port_pipe[0]);
  ::close(port_pipe[1]);
  return codes;
}

}  // namespace mge::dist
