// The backend interface, proved on the fake device: memory the host cannot reach, streams in any order that nothing
// forbids, work that fails later.
#include "core/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/fake_device.h"
#include "core/pool.h"

namespace mge {
namespace {

using testing::HasSubstr;

class Fake : public testing::Test {
 protected:
  void SetUp() override {
    enable_fake_devices();
    fake_reset();
  }
  void TearDown() override {
    for (Stream* s : CompNode::queues()) s->drain();
    fake_reset();
  }
  static Stream& stream(const char* name) { return *CompNode::get(name)->queue; }
  static Explain explain(const char* what) {
    return [what](std::exception_ptr p) {
      try {
        std::rethrow_exception(p);
      } catch (const Error& e) {
        return std::make_shared<const ExecError>(e.kind(), std::string(what) + ": " + e.text());
      }
    };
  }
  static RefPtr<Storage> host(std::vector<int> v) {
    auto s = allocate_storage({}, v.size() * sizeof(int));
    std::memcpy(s->ptr, v.data(), v.size() * sizeof(int));
    return s;
  }
  static RefPtr<Storage> device(Stream& s, size_t bytes) { return allocate_storage(s.device, bytes, &s); }
  static int first(const Storage& s) { return *static_cast<const int*>(s.ptr); }
  static void copy(Stream& s, const RefPtr<Storage>& to, const RefPtr<Storage>& from, bool wait = true) {
    OpenWork w(s.open({}, nullptr, {}));
    w->copy(to, 0, from, 0, std::min(to->bytes, from->bytes));
    RefPtr<Work> done = w.close();
    if (wait) wait_for(*done);
  }
};

TEST_F(Fake, TheHostCannotReadOrWriteItsMemory) {
  Stream& s = stream("fake0");
  auto m = device(s, 64);
  EXPECT_FALSE(host_readable(*m));
  EXPECT_TRUE(host_readable(*host({1})));
  EXPECT_DEATH(*static_cast<volatile char*>(m->ptr) = 1, "");
  EXPECT_DEATH((void)*static_cast<volatile char*>(m->ptr), "");
}

TEST_F(Fake, CopiesGoThroughTheStream) {
  Stream& s = stream("fake0");
  auto there = device(s, 8), again = device(s, 8), back = host({0, 0});
  copy(s, there, host({7, 8}));
  copy(s, again, there);
  copy(s, back, again);
  EXPECT_EQ(first(*back), 7);
  OpenWork w(s.open({}, nullptr, {}));
  w->copy(back, 4, there, 0, 4);  // byte offsets
  wait_for(*w.close());
  EXPECT_EQ(static_cast<int*>(back->ptr)[1], 7);
}

TEST_F(Fake, FunctionsOfAStreamRunInOrderAndSeeItsMemory) {
  Stream& s = stream("fake0");
  auto m = device(s, 4);
  OpenWork w(s.open({}, "add", explain("add")));
  for (int i = 0; i < 100; ++i)
    w->call([&, i] {
      auto* p = static_cast<int*>(s.reach(m->ptr));
      if (i == 0) *p = 0;
      *p = *p * 2 % 1009 + i;
    });
  auto out = host({0});
  w->copy(out, 0, m, 0, 4);
  wait_for(*w.close());
  int want = 0;
  for (int i = 0; i < 100; ++i) want = want * 2 % 1009 + i;
  EXPECT_EQ(first(*out), want);
}

TEST_F(Fake, StreamsRunInAnyOrderThatNothingForbids) {
  Stream &a = stream("fake0:0"), &b = stream("fake0:1");
  bool b_first = false, a_first = false;
  for (uint64_t seed = 0; seed < 50 && !(a_first && b_first); ++seed) {
    fake_set_seed(seed);
    std::vector<char> order;
    OpenWork gate(stream("fake0:2").open({}, nullptr, {}));  // both wait for it, so that both are there when it opens
    Work* opened = gate.get();
    OpenWork wa(a.open({&opened, 1}, nullptr, {})), wb(b.open({&opened, 1}, nullptr, {}));
    wa->call([&] { order.push_back('a'); });
    wb->call([&] { order.push_back('b'); });
    RefPtr<Work> da = wa.close(), db = wb.close();
    gate.close();
    wait_for(*da);
    wait_for(*db);
    (order[0] == 'a' ? a_first : b_first) = true;
  }
  EXPECT_TRUE(a_first && b_first);
}

TEST_F(Fake, WaitingForAStreamOrdersTwo) {
  Stream &a = stream("fake0:0"), &b = stream("fake0:1");
  for (uint64_t seed = 0; seed < 30; ++seed) {
    fake_set_seed(seed);
    std::vector<char> order;
    OpenWork wa(a.open({}, nullptr, {}));
    wa->call([&] { order.push_back('a'); });
    RefPtr<Work> da = wa.close();
    b.wait_for_stream(a);
    OpenWork wb(b.open({}, nullptr, {}));
    wb->call([&] { order.push_back('b'); });
    wait_for(*wb.close());
    EXPECT_EQ(order, (std::vector<char>{'a', 'b'}));
  }
}

TEST_F(Fake, FailedWorkDropsTheRestAndFailsWhatComesAfter) {
  Stream &a = stream("fake0:0"), &b = stream("fake1:0");
  bool ran = false;
  OpenWork wa(a.open({}, "exp", explain("exp")));
  wa->call([] { fail(ErrorKind::Value, "broken"); });
  wa->call([&] { ran = true; });
  RefPtr<Work> da = wa.close();
  Work* after = da.get();
  OpenWork wb(b.open({&after, 1}, "neg", explain("neg")));
  wb->call([&] { ran = true; });
  RefPtr<Work> db = wb.close();
  for (auto& w : {da, db}) {
    try {
      wait_for(*w);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Async);
      EXPECT_EQ(e.text(), "exp: broken");
    }
  }
  EXPECT_EQ(da->error(), db->error()) << "one failure, told once";
  EXPECT_FALSE(ran);
}

// A block that one stream still uses goes to another one behind that use.
TEST_F(Fake, MemoryIsReusedInTheOrderOfStreams) {
  Stream &a = stream("fake2:0"), &b = stream("fake2:1");
  for (uint64_t seed = 0; seed < 30; ++seed) {
    fake_set_seed(seed);
    int seen = 0;
    auto m = device(a, 4);
    void* at = m->ptr;
    OpenWork wa(a.open({}, nullptr, {}));
    auto on = [at](Stream& s) { return static_cast<int*>(s.reach(at)); };
    wa->call([&] { *on(a) = 1; });
    wa->call([&] { seen = *on(a); });
    wa.close();
    m = nullptr;  // freed while stream a has perhaps not begun
    auto n = device(b, 4);
    EXPECT_EQ(n->ptr, at) << "the same block, for stream b";
    OpenWork wb(b.open({}, nullptr, {}));
    wb->call([&] { *on(b) = 2; });
    wb.close();
    a.drain();
    b.drain();
    EXPECT_EQ(seen, 1) << "stream b wrote too early, seed " << seed;
  }
}

TEST_F(Fake, MemoryGoesBackToTheSystem) {
  Stream& s = stream("fake3");
  Pool& pool = Pool::of(s.device);
  for (int round = 0; round < 3; ++round) {
    auto big = device(s, 100 << 20), small = device(s, 100);
    copy(s, big, host({3}), /*wait=*/false);
    big = small = nullptr;
    EXPECT_GT(pool.trim(), size_t{100} << 20);
    EXPECT_EQ(pool.stats().reserved, 0u);
  }
}

TEST_F(Fake, LimitsCountOnEveryDevice) {
  Stream& s = stream("fake4");
  Pool& pool = Pool::of(s.device);
  auto m = device(s, 1 << 20);
  pool.set_limit(1 << 20);
  try {
    device(s, 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_THAT(e.text(), HasSubstr("memory limit of fake4"));
  }
  pool.set_limit(0);
}

TEST(Backends, AMissingKindIsNamed) {
  EXPECT_FALSE(Backend::has(DeviceKind::Cuda));
  try {
    Backend::of(DeviceKind::Cuda);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(), HasSubstr("no gpu0 devices here: this build has none"));
  }
}

}  // namespace
}  // namespace mge
