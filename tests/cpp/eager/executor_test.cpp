// The command path: inline and asynchronous execution, the error model, the queue, memory limits, fork and exit.
#include "eager/eager_test_util.h"

namespace mge {
namespace {

using testing::HasSubstr;
using testing::Not;

class Executor : public EagerTest {};
Attrs ms(int64_t n) { return make_attrs(NoteAttrs{n}); }

TEST_F(Executor, InlineRunsAtOnceAndThrowsWhatTheKernelThrew) {
  TensorPtr x = filled({2, 3}, 1), y = apply("test_count", {x});
  EXPECT_EQ(g_count, 1);
  EXPECT_TRUE(y->value->ready());
  Error e = caught([&] { apply("test_fail", {x, x}, ms(7)); });
  EXPECT_EQ(e.kind(), ErrorKind::Value);
  EXPECT_EQ(e.text(), "test_fail: refuses to work.\n  in test_fail(float32[2,3], float32[2,3]) {ms=7}");
  EXPECT_EQ(item(apply("add", {x, y})), 2) << "the runtime goes on";
}

// A trace that goes on after the error holds the outputs: they must not look pending for ever.
TEST_F(Executor, InlineFailureMarksTheOutputs) {
  auto run = [](const char* op, const ValuePtr& in) {
    ValuePtr out = make_ref<Value>();
    out->meta = in->meta;
    Command c;
    c.op = &op_of(op);
    c.in.push_back(in);
    c.out.push_back(out);
    EXPECT_THROW(submit(std::move(c)), Error);
    return out;
  };
  TensorPtr x = filled({2}, 1);
  ValuePtr bad = run("test_throw", x->value);
  expect_error(ErrorKind::Async, "out of patience", [&] { wait(*bad); });
  EXPECT_FALSE(bad->buffer.storage) << "a failed value holds no memory";
  ValuePtr next = run("test_count", bad);  // dependants fail without running, and are marked too
  EXPECT_EQ(g_count, 0);
  expect_error(ErrorKind::Async, "out of patience", [&] { wait(*next); });
  TensorPtr out[2];
  Tensor* in[] = {x.get()};
  EXPECT_THROW(dispatch(op_of("test_fail"), ms(0), in, out), Error);
  EXPECT_FALSE(out[0] || out[1]) << "the caller gets no half-made tensors";
}

TEST_F(Executor, InlineTurnsForeignExceptionsIntoErrors) {
  TensorPtr x = filled({2}, 1);
  Error e = caught([&] { apply("test_throw", {x}); });
  EXPECT_EQ(e.kind(), ErrorKind::Internal);
  EXPECT_EQ(e.text(), "out of patience\n  in test_throw(float32[2])");
}

TEST_F(Executor, WhatTheSystemHasNoMemoryForIsNoFaultOfTheEngine) {
  TensorPtr x = filled({2}, 1);
  expect_error(ErrorKind::Memory, "test_no_memory(float32[2])", [&] { apply("test_no_memory", {x}); });
}

TEST_F(Executor, AsyncReturnsBeforeTheWorkIsDone) {
  go_async();
  g_gate = false;
  TensorPtr x = filled({3}, 2), y = apply("test_gate", {x}), z = apply("mul", {y, y});
  EXPECT_FALSE(y->value->ready());
  EXPECT_FALSE(z->value->ready());
  EXPECT_EQ(z->meta().str(), "float32[3]") << "shapes are known at once";
  g_gate = true;
  EXPECT_EQ(values(z), (std::vector<double>{4, 4, 4}));
  EXPECT_TRUE(y->value->ready());
}

TEST_F(Executor, UserErrorsAreThrownAtTheCallAndLeaveNothing) {
  go_async();
  TensorPtr x = filled({2, 3}, 1), y = filled({4}, 1);
  expect_error(ErrorKind::Value, "add: shapes [2,3] and [4] do not broadcast", [&] { apply("add", {x, y}); });
  expect_error(ErrorKind::Type, "takes 2 inputs; got 1", [&] { apply("add", {x}); });
  expect_error(ErrorKind::Type, "different signedness", [&] {
    apply("add", {apply("full", {}, make_attrs(FullAttrs{{2}, 1, DType::U8})), tensor({2}, {1, 1}, DType::I32)});
  });
  sync();
}

TEST_F(Executor, AsyncFailureNamesOpShapesAttrsAndLine) {
  go_async();
  fake_locations();
  TensorPtr x = filled({2, 3}, 1), z = filled({3}, 1), out[2];
  Tensor* in[] = {x.get(), z.get()};
  g_line = 31;
  dispatch(op_of("test_fail"), ms(5), in, out);
  g_line = 99;  // where the error is noticed is another line
  Error e = caught([&] { wait(*out[0]->value); });
  EXPECT_EQ(e.kind(), ErrorKind::Async);
  EXPECT_EQ(e.text(),
            "test_fail: refuses to work.\n  in test_fail(float32[2,3], float32[3]) {ms=5}\n  at train.py:31 in step");
  EXPECT_EQ(caught([&] { wait(*out[1]->value); }).text(), e.text()) << "all outputs fail alike";
  EXPECT_EQ(caught([&] { values(out[0]); }).text(), e.text()) << "each reading says so again";
  sync();  // it has been seen
}

TEST_F(Executor, DependantsFailWithoutRunning) {
  go_async();
  fake_locations();
  g_line = 7;
  TensorPtr x = filled({2}, 1), bad = apply("test_fail", {x});
  g_line = 8;
  TensorPtr next = apply("test_count", {bad}), last = apply("add", {next, x}), other = apply("test_count", {x});
  Error e = caught([&] { values(last); });
  EXPECT_EQ(e.kind(), ErrorKind::Async);
  EXPECT_THAT(e.text(), HasSubstr("in test_fail(float32[2])"));
  EXPECT_THAT(e.text(), HasSubstr("at train.py:7 in step")) << "the root is named, not the dependant";
  EXPECT_THAT(e.text(), Not(HasSubstr("test_count")));
  EXPECT_EQ(values(other), (std::vector<double>{1, 1})) << "unrelated work continues";
  EXPECT_EQ(g_count, 1);
  expect_error(ErrorKind::Async, "refuses to work", [&] { values(next); });
}

TEST_F(Executor, SyncThrowsAnUnseenErrorOnce) {
  go_async();
  TensorPtr x = filled({2}, 1);
  apply("test_fail", {x});  // nobody keeps the output
  expect_error(ErrorKind::Async, "refuses to work", [] { sync(); });
  sync();
  EXPECT_EQ(item(apply("add", {x, x})), 2);
  sync();
}

TEST_F(Executor, SyncTellsOfEveryErrorNobodySaw) {
  go_async();
  TensorPtr x = filled({2}, 1), seen = apply("test_fail", {x}, ms(1));
  apply("test_throw", {x});
  apply("test_fail", {x}, ms(2));
  expect_error(ErrorKind::Async, "{ms=1}", [&] { values(seen); });
  Error e = caught([] { sync(); });  // the second is the first unseen one
  EXPECT_THAT(e.text(), HasSubstr("out of patience"));
  EXPECT_THAT(e.text(), HasSubstr("1 more"));
  sync();
}

TEST_F(Executor, LevelZeroThrowsAtTheCall) {
  go_async(0);
  TensorPtr x = filled({2}, 1), y = apply("test_count", {x});
  EXPECT_TRUE(y->value->ready());
  expect_error(ErrorKind::Async, "refuses to work", [&] { apply("test_fail", {x}); });
  sync();
  expect_error(ErrorKind::Assertion, "async_level: expected 0, 1 or 2; got 3.", [] { set_async_level(3); });
  EXPECT_EQ(async_level(), 0);
}

TEST_F(Executor, FullQueueMakesTheCallerWait) {
  go_async();
  g_gate = false;
  TensorPtr x = scalar(0), one = scalar(1), gate = apply("test_gate", {x});
  std::atomic<int> pushed{0};
  TensorPtr sum = gate;
  std::thread opener([&] {
    while (pushed < 4000) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_LT(pushed, 4500) << "the queue grew without bound";
    g_gate = true;
  });
  for (int i = 0; i < 6000; ++i) {
    sum = apply("add", {sum, one});
    ++pushed;
  }
  opener.join();
  EXPECT_EQ(item(sum), 6000);
}

TEST_F(Executor, SwitchingThePolicyDrainsFirst) {
  go_async();
  TensorPtr x = filled({2}, 3), y = apply("test_sleep", {x}, ms(30)), z = apply("add", {y, y});
  set_exec_policy(ExecPolicy::Inline);
  EXPECT_TRUE(z->value->ready());
  EXPECT_EQ(item(apply("mul", {z, z})), 36);
  go_async();
  EXPECT_EQ(item(apply("mul", {z, z})), 36);
}

TEST_F(Executor, AFailedValueStaysFailedInlineToo) {
  go_async();
  TensorPtr bad = apply("test_fail", {filled({2}, 1)});
  set_exec_policy(ExecPolicy::Inline);
  expect_error(ErrorKind::Async, "refuses to work", [&] { apply("test_count", {bad}); });
  EXPECT_EQ(g_count, 0);
}

TEST_F(Executor, StoppedWorkerStartsAgain) {
  go_async();
  TensorPtr x = filled({2}, 1), y = apply("test_sleep", {x}, ms(20));
  shutdown_executor();
  EXPECT_TRUE(y->value->ready()) << "shutdown finishes what was queued";
  EXPECT_EQ(item(apply("add", {y, y})), 2);
  shutdown_executor();
  shutdown_executor();
}

TEST_F(Executor, ManyThreadsMayWait) {
  go_async();
  TensorPtr x = filled({2}, 1);
  for (int round = 0; round < 20; ++round) {
    TensorPtr y = apply("test_sleep", {x}, ms(1)), bad = round % 4 ? nullptr : apply("test_fail", {x});
    std::vector<std::thread> readers;
    for (int t = 0; t < 4; ++t)
      readers.emplace_back([&] {
        wait(*y->value);
        EXPECT_TRUE(y->value->ready());
        if (bad) {
          EXPECT_THROW(wait(*bad->value), Error);
        }
      });
    for (auto& r : readers) r.join();
  }
  sync();
}

// ---- memory

TEST_F(Executor, MemoryLimitIsAnErrorAndLifeGoesOn) {
  TensorPtr x = filled({256, 1024}, 1);  // 1 MiB
  Pool& pool = Pool::of({});
  pool.set_limit(in_use() + (1 << 19));
  Error e = caught([&] { apply("exp", {x}); });
  EXPECT_EQ(e.kind(), ErrorKind::Memory);
  EXPECT_THAT(e.text(), HasSubstr("memory limit of cpu0"));
  EXPECT_THAT(e.text(), HasSubstr("in exp(float32[256,1024])"));
  EXPECT_EQ(item(apply("reduce", {x}, make_attrs(ReduceAttrs{"sum", {}, false}))), 256 * 1024)
      << "small results still fit";
  go_async();
  TensorPtr y = apply("exp", {x}), z = apply("test_count", {y});
  e = caught([&] { values(z); });
  EXPECT_EQ(e.kind(), ErrorKind::Async);
  EXPECT_THAT(e.text(), HasSubstr("memory limit"));
  EXPECT_EQ(g_count, 0);
  size_t before = in_use();
  for (int i = 0; i < 10; ++i) EXPECT_THROW(values(apply("exp", {x})), Error);
  sync();
  EXPECT_EQ(in_use(), before) << "failed ops hold no memory";
  pool.set_limit(0);
  EXPECT_NEAR(values(apply("exp", {x}))[5], std::exp(1.0), 1e-6);
}

TEST_F(Executor, DroppedValuesAreFreedWithoutWaiting) {
  go_async();
  TensorPtr x = filled({1024}, 1);
  size_t before = in_use();
  for (int i = 0; i < 100; ++i) apply("add", {x, x});
  sync();
  EXPECT_EQ(in_use(), before);
}

// ---- donation

TEST_F(Executor, UpdatesReuseMemoryOnlyWhenNobodyElseLooks) {
  const OpDef& add = op_of("add");
  for (ExecPolicy policy : {ExecPolicy::Inline, ExecPolicy::Async}) {
    for (bool donate : {true, false}) {
      sync();
      set_exec_policy(policy);
      set_donation(donate);
      TensorPtr cell = filled({64}, 1), one = filled({64}, 1);
      auto update = [&] {
        void* before = read_buffer(*cell).storage->ptr;
        Tensor *in[] = {cell.get(), one.get()}, *cells[] = {cell.get()};
        dispatch_update(add, nullptr, in, cells);
        return read_buffer(*cell).storage->ptr == before;
      };
      EXPECT_EQ(update(), donate);
      TensorPtr alias = detach(*cell);
      EXPECT_FALSE(update()) << "another cell holds the value";
      EXPECT_EQ(item(alias), 2);
      EXPECT_EQ(item(cell), 3);
      TensorPtr view = apply("reshape", {cell}, make_attrs(ShapeAttrs{{8, 8}}));
      wait(*view->value);
      EXPECT_FALSE(update()) << "a view shares the memory";
      EXPECT_EQ(item(view), 3);
      view = nullptr;
      EXPECT_EQ(update(), donate);
      cell->value->buffer.storage->writable = false;
      EXPECT_FALSE(update()) << "exported memory";
      EXPECT_EQ(item(cell), 6);
    }
  }
}

TEST_F(Executor, DonationNeverTouchesWhatTheTapeSaved) {
  for (ExecPolicy policy : {ExecPolicy::Inline, ExecPolicy::Async}) {
    set_exec_policy(policy);
    TensorPtr w = filled({16}, 3, DType::F64), one = filled({16}, 1, DType::F64), dw;
    GradSession session;
    session.start();
    session.attach(*w, [&](TensorPtr g) { dw = g; });
    TensorPtr y = apply("mul", {w, w});  // saves w
    session.suppress();                  // an update inside `with gm` that is not recorded
    Tensor *in[] = {w.get(), one.get()}, *cells[] = {w.get()};
    for (int i = 0; i < 3; ++i) dispatch_update(op_of("add"), nullptr, in, cells);
    session.resume();
    TensorPtr dy = filled({16}, 1, DType::F64);
    Tensor *ys[] = {y.get()}, *dys[] = {dy.get()};
    session.backward(ys, dys);
    session.stop();
    ASSERT_TRUE(dw);
    EXPECT_EQ(item(dw), 6) << "d(w*w) at the old w";
    EXPECT_EQ(item(w), 6);
  }
}

TEST_F(Executor, AFailedUpdateLeavesAFailedCell) {
  for (ExecPolicy policy : {ExecPolicy::Inline, ExecPolicy::Async}) {
    set_exec_policy(policy);
    TensorPtr cell = filled({4}, 1);
    Tensor *in[] = {cell.get()}, *cells[] = {cell.get()};
    auto update = [&] { dispatch_update(op_of("test_fail"), ms(0), in, cells); };
    if (policy == ExecPolicy::Inline) {
      EXPECT_THROW(update(), Error);
    } else {
      update();
    }
    expect_error(ErrorKind::Async, "refuses to work", [&] { values(cell); });
    assign(*cell, *filled({4}, 5));  // and can be given a value again
    EXPECT_EQ(item(cell), 5);
  }
}

// ---- fork and exit

TEST_F(Executor, ForkInInlineModeJustWorks) {
  SKIP_UNDER_TSAN;
  shutdown_executor();  // of an earlier test
  set_num_threads(2);
  TensorPtr x = filled({100000}, 2), y = apply("add", {x, x});
  int code = in_child([&] {
    TensorPtr z = apply("mul", {y, y});
    return values(z)[99999] == 16 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

// The op that runs does not end, so the fork stops waiting for it.
TEST_F(Executor, ForkInAsyncModeGivesTheChildAWorkerOfItsOwn) {
  SKIP_UNDER_TSAN;
  go_async();
  g_gate = false;
  TensorPtr x = filled({4}, 1), ready = apply("add", {x, x});
  wait(*ready->value);
  TensorPtr running = apply("test_gate", {x}), queued = apply("add", {x, running});
  int code = in_child([&] {
    alarm(15);
    auto refused = [](const TensorPtr& t) {
      try {
        wait(*t->value);
      } catch (const Error& e) {
        return e.kind() == ErrorKind::Async &&
               e.text().find("still being computed when the process was forked") != std::string::npos;
      }
      return false;
    };
    if (!refused(running) || !refused(queued)) return 2;
    TensorPtr late = apply("add", {ready, running});
    if (!refused(late)) return 3;
    if (values(ready)[0] != 2) return 4;  // what was ready can be read
    TensorPtr y = ready;
    for (int i = 0; i < 10; ++i) y = apply("add", {y, x});
    sync();
    if (values(y)[3] != 12) return 5;
    set_exec_policy(ExecPolicy::Inline);
    if (item(apply("add", {y, x})) != 13) return 6;
    shutdown_executor();  // as the interpreter does at exit
    ready = running = queued = late = y = x = nullptr;
    return 0;
  });
  EXPECT_EQ(code, 0);
  g_gate = true;
  EXPECT_EQ(item(queued), 2) << "the parent is not disturbed";
}

TEST_F(Executor, ChildrenOfChildren) {
  SKIP_UNDER_TSAN;
  go_async();
  TensorPtr x = filled({1000}, 1), y = apply("add", {x, x});
  wait(*y->value);
  int code = in_child([&] {
    alarm(15);
    TensorPtr z = apply("add", {y, y});
    if (item(z) != 4) return 2;
    return in_child([&] { return item(apply("add", {z, z})) == 8 ? 0 : 3; });
  });
  EXPECT_EQ(code, 0);
}

TEST_F(Executor, ForkWhileTheWorkerAllocates) {
  SKIP_UNDER_TSAN;
  go_async();
  TensorPtr x = filled({300, 300}, 1), bad = apply("test_fail", {x});
  EXPECT_THROW(values(bad), Error);
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 50; ++k) apply("add", {x, x});
    int code = in_child([&] {
      alarm(15);
      TensorPtr mine = scalar(1);  // takes memory from the pool
      if (item(apply("add", {mine, mine})) != 2) return 3;
      if (item(apply("add", {x, x})) != 2) return 4;
      mine = nullptr;
      try {
        wait(*bad->value);  // a stored error: must not need the worker's lock
        return 2;
      } catch (const Error&) {
      }
      x = bad = nullptr;
      return 0;
    });
    ASSERT_EQ(code, 0) << "fork " << i;
  }
}

class ExecutorDeathTest : public EagerTest {
 protected:
  void SetUp() override {
    EagerTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

void leave_work_pending() {
  alarm(20);
  register_test_ops();
  set_exec_policy(ExecPolicy::Async);
  static TensorPtr x = filled({64}, 1), last;
  for (int i = 0; i < 60; ++i) last = apply("test_sleep", {i ? last : x}, ms(5));
}

TEST_F(ExecutorDeathTest, ExitWithWorkPending) {
  auto start = std::chrono::steady_clock::now();
  EXPECT_EXIT(
      {
        leave_work_pending();
        exit(0);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(ExecutorDeathTest, OrderedShutdownWithWorkPending) {
  EXPECT_EXIT(
      {
        leave_work_pending();
        shutdown_executor();
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ExecutorDeathTest, ExitWithAnErrorNobodySaw) {
  EXPECT_EXIT(
      {
        leave_work_pending();
        apply("test_fail", {filled({2}, 1)});
        shutdown_executor();
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mge
