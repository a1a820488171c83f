#include "base/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mge {
namespace {

class ParallelTest : public testing::Test {
 protected:
  void SetUp() override { before_ = num_threads(); }
  void TearDown() override { set_num_threads(before_); }
  int before_ = 1;
};

/// Every index exactly once, in ranges of at least `grain` (but for rounding), at most a few for each thread.
void expect_partition(int64_t n, int64_t grain) {
  std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
  std::atomic<int> ranges{0};
  parallel_for(n, grain, [&](int64_t b, int64_t e) {
    EXPECT_LT(b, e);
    ++ranges;
    for (int64_t i = b; i < e; ++i) ++hits[static_cast<size_t>(i)];
  });
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(hits[static_cast<size_t>(i)], 1) << "index " << i << " of " << n << ", grain " << grain;
  EXPECT_LE(ranges, num_threads() == 1 ? 1 : num_threads() * kRangesPerThread);
  EXPECT_EQ(ranges > 0, n > 0);
  EXPECT_LE(ranges, grain > 0 ? (n + grain - 1) / grain : n);
}

TEST_F(ParallelTest, ALimitHoldsForItsThreadAndItsLife) {
  set_num_threads(2);
  {
    ThreadLimit three(3);
    EXPECT_EQ(num_threads(), 3);
    expect_partition(1000, 1);
    std::thread([] { EXPECT_EQ(num_threads(), 2); }).join();
    {
      ThreadLimit none(0);
      EXPECT_EQ(num_threads(), 3);
    }
    EXPECT_EQ(num_threads(), 3);
  }
  EXPECT_EQ(num_threads(), 2);
}

TEST_F(ParallelTest, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000})
      for (int64_t grain : {0, 1, 2, 5, 64, 100000}) expect_partition(n, grain);
  }
  parallel_for(-5, 1, [](int64_t, int64_t) { ADD_FAILURE() << "a negative count has nothing to do"; });
}

TEST_F(ParallelTest, HugeGrainAndCountDoNotOverflow) {
  set_num_threads(4);
  int calls = 0;
  parallel_for(10, INT64_MAX, [&](int64_t b, int64_t e) {
    EXPECT_EQ(b, 0);
    EXPECT_EQ(e, 10);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> ranges;
  const int64_t n = INT64_MAX / 2;
  parallel_for(n, 1, [&](int64_t b, int64_t e) {
    std::lock_guard<std::mutex> lock(mutex);
    ranges.insert({b, e});
  });
  int64_t at = 0;
  for (auto& [b, e] : ranges) {
    EXPECT_EQ(b, at);
    EXPECT_LT(b, e);
    at = e;
  }
  EXPECT_EQ(at, n);
}

TEST_F(ParallelTest, UsesSeveralThreads) {
  set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  std::atomic<int> arrived{0};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    ++arrived;
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (arrived < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 2u);
}

TEST_F(ParallelTest, NestedCallsRunInline) {
  set_num_threads(3);
  std::atomic<int> total{0};
  parallel_for(3, 1, [&](int64_t b, int64_t e) {
    auto outer = std::this_thread::get_id();
    for (int64_t i = b; i < e; ++i)
      parallel_for(100, 1, [&](int64_t ib, int64_t ie) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        EXPECT_EQ(ie - ib, 100);
        total += static_cast<int>(ie - ib);
      });
  });
  EXPECT_EQ(total, 300);
  expect_partition(100, 1);  // the caller is not marked as being inside for ever
}

TEST_F(ParallelTest, ExceptionReachesTheCallerAfterAllRangesEnded) {
  set_num_threads(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done{0};
    int64_t bad = round % 4;
    try {
      parallel_for(4, 1, [&](int64_t b, int64_t) {
        if (b == bad) throw Error(ErrorKind::Value, "range " + std::to_string(b));
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        ++done;
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.text(), "range " + std::to_string(bad));
      EXPECT_EQ(done, 3) << "a range was still running";
    }
  }
  EXPECT_THROW(parallel_for(1, 1, [](int64_t, int64_t) { throw std::runtime_error("inline"); }), std::runtime_error);
  expect_partition(1000, 1);
}

TEST_F(ParallelTest, EveryRangeThrowing) {
  set_num_threads(4);
  for (int i = 0; i < 20; ++i) EXPECT_THROW(parallel_for(4, 1, [](int64_t, int64_t) { throw 3; }), int);
  expect_partition(100, 1);
}

TEST_F(ParallelTest, ThreadCountIsChecked) {
  for (int bad : {0, -1, 257}) {
    try {
      set_num_threads(bad);
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      EXPECT_EQ(e.text(), "set_num_threads: the count must be 1..256; got " + std::to_string(bad) + ".");
    }
  }
  set_num_threads(256);
  EXPECT_EQ(num_threads(), 256);
  set_num_threads(5);
  EXPECT_EQ(num_threads(), 5);
}

TEST_F(ParallelTest, SameSumForEveryThreadCount) {
  std::vector<double> x(100000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0 / static_cast<double>(i + 1);
  double want = 0;
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    std::vector<double> rows(100);  // each row is summed by one range, so the split cannot show
    parallel_for(100, 1, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r)
        rows[static_cast<size_t>(r)] = std::accumulate(x.begin() + r * 1000, x.begin() + (r + 1) * 1000, 0.0);
    });
    double sum = std::accumulate(rows.begin(), rows.end(), 0.0);
    if (threads == 1) want = sum;
    EXPECT_EQ(sum, want) << threads;
  }
}

TEST_F(ParallelTest, ManyCallersAtOnce) {
  set_num_threads(3);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        int64_t mine[8] = {};
        parallel_for(8, 1, [&](int64_t b, int64_t e) {
          for (int64_t k = b; k < e; ++k) mine[k] = k + 1;
        });
        total += std::accumulate(mine, mine + 8, int64_t{0});
      }
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(total, 4 * 300 * 36);
}

TEST_F(ParallelTest, ManyShortRegionsBackToBack) {
  set_num_threads(2);
  int64_t sum[2] = {};
  for (int i = 0; i < 20000; ++i)
    parallel_for(2, 1, [&](int64_t b, int64_t e) {
      for (int64_t k = b; k < e; ++k) sum[k] += k + i;
    });
  EXPECT_EQ(sum[0], 199990000);
  EXPECT_EQ(sum[1], 199990000 + 20000);
}

/// Ids of the threads of this process, the workers of the team among them by name.
std::set<std::string> tasks(bool team_only) {
  std::set<std::string> ids;
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (!team_only || name.starts_with("mge-team-")) ids.insert(entry.path().filename());
  }
  return ids;
}

TEST_F(ParallelTest, NoRegionStartsOrEndsAThread) {
  for (int threads : {2, 3, 8, 16}) {
    set_num_threads(threads);
    expect_partition(1000, 1);
    const auto team = tasks(true);
    EXPECT_EQ(team.size(), static_cast<size_t>(threads - 1));
    const auto all = tasks(false);
    for (int round = 0; round < 50; ++round) {
      for (int64_t n : {1, 2, 3, 7, 20, 1000}) expect_partition(n, 1);  // regions for fewer threads and for all
      ThreadLimit fewer(1 + round % threads);
      expect_partition(100, 1);
    }
    EXPECT_EQ(tasks(false), all);
  }
  set_num_threads(2);  // asked for fewer: the others end
  EXPECT_EQ(tasks(true).size(), 1u);
  EXPECT_EQ(thread_report().workers, 1);
  EXPECT_EQ(thread_report().count, 2);
  EXPECT_EQ(thread_report().from, "set_num_threads");
}

TEST_F(ParallelTest, ManyCallersShareOneTeam) {
  set_num_threads(3);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([] {
      for (int i = 0; i < 200; ++i) expect_partition(30, 1);
    });
  for (auto& c : callers) c.join();
  EXPECT_LE(tasks(true).size(), 2u);
}

TEST_F(ParallelTest, WhoeverIsLateDelaysNobody) {
  set_num_threads(4);
  expect_partition(100, 1);
  // A range that another thread has taken holds that thread; all others are done by those that are free.
  std::atomic<int> done{0};
  std::atomic<bool> stuck{false};
  parallel_for(16, 1, [&](int64_t b, int64_t) {
    if (b == 15) {
      stuck = true;
      auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (done < 15 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      EXPECT_EQ(done, 15);
    } else {
      ++done;
    }
  });
  EXPECT_TRUE(stuck);
}

TEST_F(ParallelTest, InsideThereIsOneThread) {
  set_num_threads(4);
  parallel_for(4, 1, [](int64_t, int64_t) { EXPECT_EQ(num_threads(), 1); });
  EXPECT_EQ(num_threads(), 4);
}

TEST_F(ParallelTest, SetNumThreadsInsideAndBesideARegion) {
  set_num_threads(4);
  parallel_for(16, 1, [](int64_t b, int64_t) {
    if (b == 5) set_num_threads(2);
  });
  expect_partition(100, 1);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) parallel_for(8, 1, [](int64_t, int64_t) {});
  });
  for (int i = 0; i < 300; ++i) set_num_threads(1 + i % 5);
  stop = true;
  busy.join();
  set_num_threads(3);
  expect_partition(100, 1);
  EXPECT_EQ(tasks(true).size(), 2u);
  // Asked for one while the team is at work: the others end, though no further region is opened.
  for (int i = 0; i < 20; ++i) {
    set_num_threads(4);
    std::atomic<int> begun{0};
    std::atomic<bool> asked{false};
    std::thread caller([&] {
      parallel_for(8, 1, [&](int64_t, int64_t) {
        ++begun;
        while (!asked) std::this_thread::yield();
      });
    });
    while (begun == 0) std::this_thread::yield();
    set_num_threads(1);
    asked = true;
    caller.join();
    EXPECT_EQ(tasks(true).size(), 0u);
  }
}

// The thread sanitizer takes threads that a forked child starts for those of its parent ("dup thread with used id").
#ifdef __SANITIZE_THREAD__
#define SKIP_UNDER_TSAN GTEST_SKIP() << "the child starts threads"
#else
#define SKIP_UNDER_TSAN (void)0
#endif

/// Runs `body` in a forked child and returns its exit status; -1 when it had not ended after `seconds`.
template <class F>
int in_child(F body, int seconds = 20) {
  fflush(nullptr);
  pid_t pid = fork();
  if (pid == 0) _exit(body());
  for (int i = 0; i < seconds * 100; ++i) {
    int status;
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    usleep(10000);
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

TEST_F(ParallelTest, ForkedChildHasATeamOfItsOwn) {
  SKIP_UNDER_TSAN;
  set_num_threads(4);
  expect_partition(1000, 1);  // the team exists now
  int code = in_child([] {
    if (num_threads() != 4) return 2;
    // Each range waits until all have begun: only four threads at once can do that.
    for (int round = 0; round < 3; ++round) {
      std::atomic<int> begun{0};
      std::atomic<int64_t> items{0};
      parallel_for(1000, 250, [&](int64_t b, int64_t e) {
        for (++begun; begun < 4;) std::this_thread::yield();
        items += e - b;
      });
      if (items != 1000) return 3;
    }
    set_num_threads(1);
    int ranges = 0;
    parallel_for(1000, 1, [&](int64_t, int64_t) { ++ranges; });
    return ranges == 1 ? 0 : 4;
  });
  EXPECT_EQ(code, 0);
  expect_partition(1000, 1);  // the parent is as before
  EXPECT_EQ(num_threads(), 4);
}

TEST_F(ParallelTest, ForkWhileAnotherThreadIsInARegion) {
  SKIP_UNDER_TSAN;
  set_num_threads(3);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) parallel_for(3, 1, [](int64_t, int64_t) {});
  });
  for (int i = 0; i < 10; ++i) {
    int code = in_child([] {
      std::atomic<int64_t> items{0};
      parallel_for(500, 1, [&](int64_t b, int64_t e) { items += e - b; });
      return items == 500 ? 0 : 2;
    });
    EXPECT_EQ(code, 0);
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace mge
