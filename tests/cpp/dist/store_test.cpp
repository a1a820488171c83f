#include "dist/store.h"

#include <gmock/gmock.h>

#include "dist/ranks.h"
#include "dist/wire.h"

namespace mge::dist {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.text();
  }
  return {};
}

TEST(Store, KeepsWaitsCountsAndForgets) {
  StoreServer server("127.0.0.1", 0, kToken);
  auto a = connect(server.port()), b = connect(server.port());
  std::string big(3'000'000, 'x');
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    b->set("k", big);
  });
  EXPECT_EQ(a->get("k", 10s), big);
  later.join();
  EXPECT_EQ(a->try_get("none"), std::nullopt);
  EXPECT_EQ(a->pop("k"), big);
  EXPECT_EQ(b->try_get("k"), std::nullopt);
  EXPECT_EQ(a->add("n", 2) + b->add("n", 3), 7);
  a->set("gone", "");
  EXPECT_TRUE(a->erase("gone"));
  EXPECT_FALSE(a->erase("gone"));
  EXPECT_THAT(error_of([&] { a->get("never", 100ms); }), HasSubstr("nobody has set 'never' within 0.1 s"));
  EXPECT_THAT(error_of([&] { a->barrier("door", 3, 100ms); }), HasSubstr("1 of 3 have come to 'door'"));
}

TEST(Store, BarriersOpenForAllAndAgain) {
  StoreServer server("127.0.0.1", 0, kToken);
  auto store = connect(server.port());
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 1; k <= 5; ++k) {
        inside.fetch_add(1);
        store->barrier("b", 4);
        EXPECT_GE(inside.load(), 4 * k);
        store->barrier("c", 4);
      }
    });
  for (auto& t : threads) t.join();
}

TEST(Store, StrangersAreTurnedAway) {
  StoreServer server("127.0.0.1", 0, kToken);
  EXPECT_THAT(error_of([&] { Store("127.0.0.1", server.port(), "guess", 5s); }), HasSubstr("token"));
  EXPECT_THAT(error_of([&] { Store("127.0.0.1", server.port(), "", 5s); }), HasSubstr("token"));
  // Somebody who speaks another language, or too much, is cut off and nobody else notices.
  for (const std::string& noise : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff')}) {
    const int fd = connect_to("127.0.0.1", server.port(), Clock::now() + 5s);
    error_of([&] { send_frame(fd, noise, Clock::now() + 5s, "test"); });
    EXPECT_NE(error_of([&] { recv_frame(fd, Clock::now() + 5s, "test"); }), "");
    close_fd(fd);
  }
  auto store = connect(server.port());
  store->set("a", "1");
  EXPECT_EQ(store->get("a"), "1");
}

// What a member asks for may be any number.
TEST(Store, NumbersAtTheirEnds) {
  StoreServer server("127.0.0.1", 0, kToken);
  auto store = connect(server.port());
  EXPECT_EQ(store->add("n", INT64_MAX), INT64_MAX);
  EXPECT_EQ(store->add("n", 1), INT64_MIN);
  EXPECT_EQ(store->add("n", -1), INT64_MAX);
  const int fd = connect_to("127.0.0.1", server.port(), Clock::now() + 5s);
  send_frame(fd, kToken, Clock::now() + 5s, "test");
  EXPECT_EQ(recv_frame(fd, Clock::now() + 5s, "test"), kWelcome);
  for (const uint64_t time : {UINT64_MAX, uint64_t{1} << 63, uint64_t{INT64_MAX}}) {  // milliseconds to wait
    std::string get = "G";
    for (const uint64_t v : {time, uint64_t{1}, uint64_t{1}}) put_u64(get, v);
    put_string(get, "later");
    send_frame(fd, get, Clock::now() + 5s, "test");
    std::this_thread::sleep_for(20ms);
    store->set("later", "x");
    std::string want;
    put_u64(want, 0);
    put_string(want, "x");
    EXPECT_EQ(recv_frame(fd, Clock::now() + 5s, "test"), want);
  }
  close_fd(fd);
}

TEST(Store, SaysWhatIsWrongWithAddresses) {
  StoreServer server("127.0.0.1", 0, kToken);
  EXPECT_THAT(error_of([&] { StoreServer("127.0.0.1", server.port(), kToken); }),
              HasSubstr(format("cannot serve on 127.0.0.1:{}: it is in use", server.port())));
  const int port = server.port();
  server.close();
  EXPECT_THAT(error_of([&] { Store("127.0.0.1", port, kToken, 200ms); }),
              HasSubstr(format("nobody serves at 127.0.0.1:{}", port)));
  EXPECT_THAT(error_of([&] { Store("no such host", 1, kToken, 200ms); }), HasSubstr("cannot find the host"));
  EXPECT_THAT(error_of([&] { Store("127.0.0.1", 70000, kToken, 200ms); }), HasSubstr("a port lies in 1 .. 65535"));
}

TEST(Store, AServerThatEndsIsNoticed) {
  auto server = std::make_unique<StoreServer>("127.0.0.1", 0, kToken);
  auto store = connect(server->port());
  std::string told;
  std::thread waits([&] { told = error_of([&] { store->get("never"); }); });
  std::this_thread::sleep_for(50ms);
  server.reset();
  waits.join();
  EXPECT_THAT(told, HasSubstr("server closed the connection"));
  const auto before = Clock::now();  // and nobody waits for it again
  EXPECT_THAT(error_of([&] { store->set("a", "b"); }), HasSubstr("nobody serves at"));
  EXPECT_LT(Clock::now() - before, 5s);
}

}  // namespace
}  // namespace mge::dist
