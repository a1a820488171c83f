// Several devices, the fake one, and several threads at once.
#include "core/fake_device.h"
#include "eager_test_util.h"
#include "op/shape/copy_to.h"

namespace mge {
namespace {

using testing::HasSubstr;

constexpr int64_t kLong = 60'000'000;  // of a pause that the test ends

class Devices : public EagerTest {
 protected:
  void SetUp() override {
    EagerTest::SetUp();
    enable_fake_devices();
    fake_reset();
  }
  void TearDown() override {
    fake_reset();
    set_wait_hooks({});
    EagerTest::TearDown();
  }
};

TensorPtr on(const char* device, const TensorPtr& x, bool borrow = false) {
  return apply("copy_to", {x}, make_attrs(CopyToAttrs{device, borrow}));
}

bool is_done(const TensorPtr& t) {
  if (!t->value->ready()) return false;
  const RefPtr<Work>& w = t->value->buffer.work;
  return !w || w->wait_for(std::chrono::milliseconds(0));
}

TEST_F(Devices, CopiesMoveAValueAndItsMemory) {
  TensorPtr x = filled({1000}, 2);
  Pool& one = Pool::of({DeviceKind::Cpu, 1});
  size_t before = one.stats().allocated;
  TensorPtr y = on("cpu1", x);
  EXPECT_EQ(y->meta().cn->logical, "cpu1:0");
  EXPECT_GE(one.stats().allocated, before + 4000);
  EXPECT_EQ(apply("add", {y, y})->meta().cn, y->meta().cn);
  expect_error(ErrorKind::Value, "add: ambiguous device", [&] { apply("add", {x, y}); });
  TensorPtr z = on("cpu0:1", x, true);
  EXPECT_EQ(read_buffer(*z).storage->ptr, read_buffer(*x).storage->ptr);
  expect_error(ErrorKind::Value, "different devices", [&] { on("cpu1", x, true); });
  expect_error(ErrorKind::Value, "needs a device", [&] { apply("copy_to", {x}); });
}

TEST_F(Devices, FakeOpsAreQueuedInlineOpsAreNot) {
  fake_set_delay(kLong);
  TensorPtr x = filled({4}, 1), f = on("fake0", x), y = apply("add", {f, f});
  EXPECT_FALSE(is_done(y));
  EXPECT_EQ(item(apply("add", {x, x})), 2);
  EXPECT_FALSE(is_done(y)) << "the CPU did not wait for it";
  fake_set_delay(0);
  EXPECT_EQ(item(on("cpu0", y)), 2) << "a copy home waits";
  EXPECT_EQ(fake_ops_run(), 2);
}

TEST_F(Devices, FaultsComeWhenTheyAreDue) {
  TensorPtr f = on("fake0", filled({4}, 1));
  sync();
  for (FakeFault fault : {FakeFault::Kernel, FakeFault::Memory}) {
    fake_fail_at(2, fault);
    TensorPtr a = apply("exp", {f}), b = apply("neg", {f}), c = apply("add", {b, a}), d = apply("abs", {f});
    EXPECT_EQ(item(d), 1);
    Error e = caught([&] { values(c); });
    EXPECT_EQ(e.kind(), ErrorKind::Async);
    EXPECT_THAT(e.text(), HasSubstr("in neg(float32[4])"));
    EXPECT_THROW(values(b), Error);
    EXPECT_GT(item(a), 2);
  }
  sync();
}

TEST_F(Devices, SyncTellsOfFakeErrorsWhilePolicyIsInline) {
  TensorPtr f = on("fake0", filled({4}, 1));
  sync();
  fake_fail_at(1, FakeFault::Lost);
  apply("exp", {f});
  apply("exp", {f});
  Error e = caught([] { sync(); });
  EXPECT_THAT(e.text(), HasSubstr("device fake0 is lost"));
  EXPECT_THAT(e.text(), HasSubstr("1 more"));
  sync();
}

struct Enough {};

TEST_F(Devices, AWaitCanBeInterrupted) {
  fake_set_delay(kLong);
  TensorPtr y = apply("exp", {on("fake0", filled({4}, 0))});
  set_wait_hooks({nullptr, nullptr, [] { throw Enough(); }});
  EXPECT_THROW(wait(*y->value), Enough);
  EXPECT_THROW(sync(), Enough);
  EXPECT_FALSE(is_done(y));
  set_wait_hooks({});
  fake_set_delay(0);
  EXPECT_EQ(item(y), 1) << "the work goes on";
}

TEST_F(Devices, InterruptedPushLeavesNothingPending) {
  fake_set_delay(100);
  TensorPtr f = on("fake0", filled({1}, 0)), cell = on("fake0", filled({1}, 0));
  sync();
  fake_set_delay(kLong);
  apply("exp", {f});
  while (fake_ops_run() < 3) std::this_thread::yield();   // it has begun, and sleeps
  for (int i = 0; i < 4096 + 64; ++i) apply("neg", {f});  // the queues of worker and stream are full now
  set_wait_hooks({nullptr, nullptr, [] { throw Enough(); }});
  Tensor *in[] = {cell.get(), f.get()}, *cells[] = {cell.get()};
  EXPECT_THROW(dispatch_update(op_of("add"), nullptr, in, cells), Enough);
  set_wait_hooks({});
  fake_set_delay(0);
  expect_error(ErrorKind::Async, "interrupted", [&] { values(cell); });
}

TEST_F(Devices, TinyIntegersAreComputedAtOnce) {
  fake_set_delay(kLong);
  TensorPtr f = on("fake0", filled({4}, 1));  // queued: float
  go_async();
  g_gate = false;
  TensorPtr gate = apply("test_gate", {filled({1}, 0)});  // holds up the worker of the CPU
  TensorPtr n = tensor({3}, {2, 3, 4}, DType::I32);
  TensorPtr p = apply("reduce", {n}, make_attrs(ReduceAttrs{"prod", {}, false}));
  EXPECT_TRUE(p->value->ready());
  EXPECT_EQ(item(p), 24);
  EXPECT_FALSE(apply("add", {filled({3}, 1), filled({3}, 1)})->value->ready()) << "floats go through the queue";
  TensorPtr wide = apply("broadcast_to", {p}, make_attrs(ShapeAttrs{{1000}}));
  EXPECT_FALSE(wide->value->ready()) << "so do large results";
  EXPECT_FALSE(is_done(f));
  fake_set_delay(0);
  g_gate = true;
  EXPECT_EQ(values(wide)[999], 24);
}

// ---- threads

constexpr int kThreads = 4;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int k = 0; k < kThreads; ++k) threads.emplace_back([&, k] { body(k); });
  for (auto& t : threads) t.join();
}

TEST_F(Devices, ManyThreadsDispatch) {
  for (ExecPolicy policy : {ExecPolicy::Inline, ExecPolicy::Async}) {
    set_exec_policy(policy);
    TensorPtr shared = filled({64}, 1);
    in_threads([&](int k) {
      TensorPtr x = filled({64}, k);
      for (int i = 0; i < 200; ++i) {
        x = apply("add", {x, shared});
        if (i % 50 == 0) {
          EXPECT_EQ(item(x), k + i + 1);
        }
        if (i % 70 == 0) {
          TensorPtr bad;
          try {
            bad = apply("test_fail", {x});
            values(bad);
            ADD_FAILURE() << "no error";
          } catch (const Error& e) {
            EXPECT_THAT(e.text(), HasSubstr("refuses to work"));
          }
        }
      }
      EXPECT_EQ(item(x), k + 200);
    });
    sync();
  }
}

TEST_F(Devices, EachThreadHasItsOwnSessions) {
  for (ExecPolicy policy : {ExecPolicy::Inline, ExecPolicy::Async}) {
    set_exec_policy(policy);
    in_threads([&](int k) {
      EXPECT_FALSE(any_grad_session());
      for (int i = 0; i < 50; ++i) {
        TensorPtr w = filled({8}, k + 1, DType::F64), dw;
        GradSession session;
        session.start();
        EXPECT_EQ(session.level(), 1) << "sessions of other threads do not nest around this one";
        session.attach(*w, [&](TensorPtr g) { dw = g; });
        TensorPtr y = apply("mul", {w, w}), dy = filled({8}, 1, DType::F64);
        Tensor *ys[] = {y.get()}, *dys[] = {dy.get()};
        session.backward(ys, dys);
        session.stop();
        ASSERT_TRUE(dw);
        EXPECT_EQ(item(dw), 2 * (k + 1));
      }
    });
  }
}

TEST_F(Devices, ASessionMayEndOnAnotherThreadThanItBegan) {
  auto session = make_ref<GradSession>();
  std::thread([&] { session->start(); }).join();
  EXPECT_TRUE(session->active());
  EXPECT_FALSE(any_grad_session());
  session->stop();
  EXPECT_FALSE(session->active());
}

}  // namespace
}  // namespace mge
