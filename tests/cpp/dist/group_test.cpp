#include "dist/group.h"

#include <gmock/gmock.h>

#include "core/half.h"
#include "dist/ranks.h"

namespace mge::dist {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

class OverBackends : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Dist, OverBackends, testing::ValuesIn(test_backends()), [](auto& p) { return p.param; });

// A value that differs by rank and place, and whose sums are not exact in float32.
float value(int rank, size_t i) { return 0.1f * static_cast<float>(rank + 1) + 1e-3f * static_cast<float>(i % 1013); }
std::vector<float> values(int rank, size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = value(rank, i);
  return x;
}
Call call(Op op, const std::vector<float>& x, std::vector<float>& y, Mode mode = Mode::None, int root = -1) {
  return {.op = op,
          .mode = mode,
          .root = root,
          .dtype = DType::F32,
          .shape = Shape{static_cast<int64_t>(x.size())},
          .in = x.data(),
          .out = y.data()};
}

constexpr size_t kCounts[] = {0, 1, 7, 5000, 300'017};

TEST_P(OverBackends, SumsAreThoseInTheOrderOfRanks) {
  for (int size : {2, 3, 5})
    EXPECT_THAT(in_threads(size, GetParam(),
                           [&](ProcessGroup& g) {
                             for (size_t n : kCounts) {
                               auto x = values(g.rank(), n);
                               std::vector<float> y(n, -1), want(n), most(n, -1);
                               g.run(call(Op::AllReduce, x, y, Mode::Sum));
                               g.run(call(Op::AllReduce, x, most, Mode::Max));
                               for (size_t i = 0; i < n; ++i) {
                                 want[i] = value(0, i);
                                 for (int r = 1; r < size; ++r) want[i] += value(r, i);
                                 ASSERT_EQ(y[i], want[i]) << n << " " << i;
                                 ASSERT_EQ(most[i], value(size - 1, i));
                               }
                               for (int root : {0, size - 1}) {
                                 std::vector<float> z(g.rank() == root ? n : 0, -1);
                                 g.run(call(Op::Reduce, x, z, Mode::Sum, root));
                                 if (g.rank() == root) {
                                   ASSERT_EQ(z, want);
                                 }
                               }
                             }
                           }),
                Each(IsEmpty()));
}

TEST_P(OverBackends, BlocksGoWhereTheyBelong) {
  for (int size : {2, 4})
    EXPECT_THAT(in_threads(size, GetParam(),
                           [&](ProcessGroup& g) {
                             const int me = g.rank();
                             const auto s = static_cast<size_t>(size);
                             for (size_t n : kCounts) {
                               auto x = values(me, n), wide = values(me, n * s);
                               std::vector<float> y(n, -1), z(n * s, -1);
                               for (int root : {0, 1}) {
                                 g.run(call(Op::Broadcast, x, y, Mode::None, root));
                                 ASSERT_EQ(y, values(root, n));
                                 g.run(call(Op::Scatter, wide, y, Mode::None, root));
                                 for (size_t i = 0; i < n; ++i)
                                   ASSERT_EQ(y[i], value(root, n * static_cast<size_t>(me) + i));
                                 std::vector<float> all(me == root ? n * s : 0);
                                 g.run(call(Op::Gather, x, all, Mode::None, root));
                                 for (size_t i = 0; i < all.size(); ++i)
                                   ASSERT_EQ(all[i], value(static_cast<int>(i / n), i % n));
                               }
                               g.run(call(Op::AllGather, x, z));
                               for (size_t i = 0; i < z.size(); ++i)
                                 ASSERT_EQ(z[i], value(static_cast<int>(i / n), i % n));
                               g.run(call(Op::AllToAll, wide, z));
                               for (size_t i = 0; i < z.size(); ++i)
                                 ASSERT_EQ(z[i], value(static_cast<int>(i / n), n * static_cast<size_t>(me) + i % n));
                               g.run(call(Op::ReduceScatter, wide, y, Mode::Sum));
                               for (size_t i = 0; i < n; ++i) {
                                 const size_t at = n * static_cast<size_t>(me) + i;
                                 float want = value(0, at);
                                 for (int r = 1; r < size; ++r) want += value(r, at);
                                 ASSERT_EQ(y[i], want);
                               }
                               g.barrier();
                             }
                             const auto told = g.exchange(std::string(static_cast<size_t>(me), 'x'));
                             ASSERT_EQ(told.size(), s);
                             for (int r = 0; r < size; ++r)
                               ASSERT_EQ(told[static_cast<size_t>(r)].size(), static_cast<size_t>(r));
                           }),
                Each(IsEmpty()));
}

template <class T>
void check_type(ProcessGroup& g, DType t, Mode m, T a, T b, T want) {
  const size_t n = 40'000 / sizeof(T) + 3;
  std::vector<T> x(n, g.rank() ? b : a), y(n);
  g.run({.op = Op::AllReduce,
         .mode = m,
         .dtype = t,
         .shape = Shape{static_cast<int64_t>(n)},
         .in = x.data(),
         .out = y.data()});
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(std::memcmp(&y[i], &want, sizeof(T)), 0) << dtype_name(t) << " " << i;
}

TEST_P(OverBackends, EveryDtypeIsAddedAsItsKernelsAdd) {
  EXPECT_THAT(in_threads(2, GetParam(),
                         [](ProcessGroup& g) {
                           check_type<uint8_t>(g, DType::U8, Mode::Sum, 200, 100, 44);
                           check_type<int8_t>(g, DType::I8, Mode::Prod, 100, 3, 44);
                           check_type<uint16_t>(g, DType::U16, Mode::Sum, 65535, 2, 1);
                           check_type<int16_t>(g, DType::I16, Mode::Min, -5, 3, -5);
                           check_type<int32_t>(g, DType::I32, Mode::Sum, INT32_MAX, 1, INT32_MIN);
                           check_type<int64_t>(g, DType::I64, Mode::Prod, int64_t{1} << 62, 4, 0);
                           check_type<double>(g, DType::F64, Mode::Sum, 0.1, 0.2, 0.1 + 0.2);
                           check_type(g, DType::F16, Mode::Sum, Half(1.f), Half(0x1p-11f), Half(1.f));
                           check_type(g, DType::BF16, Mode::Max, BFloat(-1.f), BFloat(2.f), BFloat(2.f));
                           check_type<uint8_t>(g, DType::Bool, Mode::Max, 0, 1, 1);
                           check_type<uint8_t>(g, DType::Bool, Mode::Min, 0, 1, 0);
                         }),
              Each(IsEmpty()));
}

TEST_P(OverBackends, TwoThatBothSendFirstDoNotWaitForEachOther) {
  EXPECT_THAT(in_threads(2, GetParam(),
                         [](ProcessGroup& g) {
                           const int peer = 1 - g.rank();
                           for (size_t n : {size_t{3}, size_t{1'000'000}}) {
                             auto x = values(g.rank(), n);
                             std::vector<float> y(n), none;
                             for (int k = 0; k < 3; ++k) g.run(call(Op::Send, x, none, Mode::None, peer));
                             for (int k = 0; k < 3; ++k) {
                               Call c = call(Op::Recv, y, y, Mode::None, peer);
                               g.run(c);
                               ASSERT_EQ(y, values(peer, n));
                             }
                           }
                           g.barrier();
                         }),
              Each(IsEmpty()));
}

// ---- bad days

TEST_P(OverBackends, DisagreementNamesBothCalls) {
  struct Case {
    Op op;
    size_t n;
    Mode mode;
    const char* told;
  };
  for (const Case& k : {Case{Op::AllGather, 4, Mode::None, "dist_all_gather(float32[4])"},
                        Case{Op::AllReduce, 5, Mode::Sum, "dist_all_reduce(float32[5], mode=\"sum\")"},
                        Case{Op::AllReduce, 4, Mode::Max, "dist_all_reduce(float32[4], mode=\"max\")"}}) {
    auto errors = in_threads(3, GetParam(), [&](ProcessGroup& g) {
      std::vector<float> x(20), y(60);
      x.resize(g.rank() == 2 ? k.n : 4);
      if (g.rank() == 2)
        g.run(call(k.op, x, y, k.mode));
      else
        g.run(call(Op::AllReduce, x, y, Mode::Sum));
    });
    for (int r = 0; r < 3; ++r)
      EXPECT_THAT(errors[static_cast<size_t>(r)],
                  testing::AllOf(HasSubstr("disagree"), HasSubstr(k.told),
                                 HasSubstr("dist_all_reduce(float32[4], mode=\"sum\")")));
  }
}

TEST_P(OverBackends, WhoHangsIsNamedAndTheGroupHasFailed) {
  auto errors = in_threads(
      3, GetParam(),
      [](ProcessGroup& g) {
        std::vector<float> x(4), y(4);
        g.barrier();
        if (g.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2500));
          g.run(call(Op::AllReduce, x, y, Mode::Sum));
          return;
        }
        std::string first;
        try {
          g.run(call(Op::AllReduce, x, y, Mode::Sum));
        } catch (const Error& e) {
          first = e.text();
        }
        EXPECT_THAT(first, HasSubstr("rank 1"));
        EXPECT_FALSE(g.failure().empty());
        const auto before = Clock::now();
        try {
          g.barrier();
        } catch (const Error& e) {
          EXPECT_LT(Clock::now() - before, Millis(500));
          EXPECT_THAT(e.text(), HasSubstr(first));
          throw;
        }
      },
      Millis(1000));
  EXPECT_THAT(errors, Each(HasSubstr("rank 1")));
}

TEST_P(OverBackends, AbortEndsWhoWaits) {
  auto errors = in_threads(2, GetParam(), [](ProcessGroup& g) {
    g.barrier();
    if (g.rank() == 0) {
      g.abort("the user has had enough");
      g.barrier();
    } else {
      g.barrier();
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("the user has had enough")));
}

TEST_P(OverBackends, AKilledProcessIsNamed) {
  const std::string backend = GetParam();
  auto codes = in_processes(3, [&](int rank, std::shared_ptr<Store> store) {
    auto g = make_host_group({"test", rank, 3, backend, kLong}, std::move(store));
    std::vector<float> x(100'000), y(100'000);
    g->run(call(Op::AllReduce, x, y, Mode::Sum));
    if (rank == 1) raise(SIGKILL);
    const auto before = Clock::now();
    try {
      g->run(call(Op::AllReduce, x, y, Mode::Sum));
    } catch (const Error& e) {
      if (Clock::now() - before > Millis(10'000)) return 3;
      if (e.text().find("rank 1") == std::string::npos) return 4;
      return 7;
    }
    return 5;
  });
  EXPECT_EQ(codes, (std::vector<int>{7, -SIGKILL, 7}));
}

TEST(Dist, AForkedChildIsRefused) {
  auto codes = in_processes(2, [&](int rank, std::shared_ptr<Store> store) {
    auto g = make_host_group({"test", rank, 2, "shm", kLong}, store);
    const pid_t child = fork();
    if (child == 0) {
      try {
        g->barrier();
      } catch (const Error& e) {
        if (e.text().find("forked child") == std::string::npos) _exit(3);
        try {
          store->set("a", "b");
        } catch (const Error& f) {
          _exit(f.text().find("forked child") != std::string::npos ? 7 : 4);
        }
      }
      _exit(5);
    }
    int status = 0;
    waitpid(child, &status, 0);
    g->barrier();  // the parent goes on
    return WEXITSTATUS(status);
  });
  EXPECT_EQ(codes, (std::vector<int>{7, 7}));
}

TEST(Dist, MeetingsThatFailSayWhy) {
  StoreServer server("127.0.0.1", 0, kToken);
  auto meet = [&](const std::string& name, int rank, int size, const std::string& backend, Millis t) -> std::string {
    try {
      make_host_group({name, rank, size, backend, t}, connect(server.port()));
      return "";
    } catch (const Error& e) {
      return e.text();
    }
  };
  EXPECT_THAT(meet("alone", 0, 3, "shm", Millis(300)), HasSubstr("rank 1, 2 never came to 'alone' within 0.3 s"));
  EXPECT_THAT(meet("alone", 0, 3, "shm", Millis(300)), HasSubstr("rank 0 of 'alone' is taken"));
  std::string a, b;
  std::thread other([&] { a = meet("sizes", 0, 2, "shm", kLong); });
  b = meet("sizes", 1, 3, "shm", kLong);
  other.join();
  EXPECT_THAT(a, HasSubstr("do not agree how many they are"));
  EXPECT_THAT(b, HasSubstr("do not agree how many they are"));
  EXPECT_THAT(meet("x", 2, 2, "shm", kLong), HasSubstr("rank must lie in 0 .. size-1; got rank 2 of 2"));
  EXPECT_THAT(meet("x", 0, 2, "mpi", kLong), HasSubstr("backend must be auto, shm, gloo or local; got 'mpi'"));
  EXPECT_EQ(meet("x", 0, 1, "local", kLong), "");
}

}  // namespace
}  // namespace mge::dist
