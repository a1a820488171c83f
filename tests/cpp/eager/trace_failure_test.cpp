// Traced calls that fail: guarded, told with their line, and harmless.
#include "eager/trace_test_util.h"
#include "ir/text.h"

namespace mge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TraceFailures : public TraceTest {};
INSTANTIATE_TEST_SUITE_P(Policies, TraceFailures, testing::Values(ExecPolicy::Inline, ExecPolicy::Async), policy_name);

// ---- mismatches

TEST_P(TraceFailures, MismatchTexts) {
  fake_locations();
  TensorPtr w = filled({2}, 1), x = filled({2}, 2), u = filled({2}, 3);
  Body body = [&](const Tensors& a) {
    g_line = 4;
    TensorPtr y = apply("add", {a[0], w});
    g_line = 5;
    TensorPtr z = apply("mul", {y, y});
    g_line = 6;
    return Tensors{apply("concat", {z, w}, make_attrs(AxisAttrs{0}))};
  };
  Traced t(body);
  t.record({x});
  auto error = [&](const Body& other) {
    std::string text = trace_error([&] { t.match({x}, other); });
    EXPECT_THAT(text, testing::StartsWith("trace error because "));
    EXPECT_EQ(item(t.match({x})[0]), 9) << "usable after: " << text;
    return text;
  };
  EXPECT_EQ(
      error([&](const Tensors& a) {
        g_line = 44;
        return Tensors{apply("sub", {a[0], w})};
      }),
      "trace error because operator mismatch\n  the recording has add here, the call made sub. Every call must make "
      "the same ops: choose with F.where, or put what differs into `with exclude_from_trace():`.\n  at train.py:44 "
      "in step");
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr z = apply("mul", {apply("add", {a[0], w}), a[0]});
                return Tensors{z};
              }),
              HasSubstr("expect internal node, got external"));
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr y = apply("add", {a[0], w});
                return Tensors{apply("mul", {y, apply("mul", {y, y})})};
              }),
              HasSubstr("operator mismatch\n  the recording has concat{axis=0} here, the call made mul"));
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr y = apply("add", {a[0], w}), z = apply("mul", {y, y});
                return Tensors{apply("concat", {z, y}, make_attrs(AxisAttrs{0}))};
              }),
              HasSubstr("expect external node, got internal"));
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr y = apply("add", {a[0], w}), z = apply("mul", {y, y});
                return Tensors{apply("concat", {z, w}, make_attrs(AxisAttrs{-1}))};
              }),
              HasSubstr("the recording has concat{axis=0} here, the call made concat{axis=-1}"));
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr y = apply("add", {a[0], w}), z = apply("mul", {y, y});
                return Tensors{apply("concat", {z, w, w}, make_attrs(AxisAttrs{0}))};
              }),
              HasSubstr("input size mismatch"));
  EXPECT_THAT(error([&](const Tensors& a) {
                TensorPtr y = apply("add", {a[0], w}), z = apply("mul", {y, y});
                return Tensors{apply("concat", {z, u}, make_attrs(AxisAttrs{0}))};
              }),
              HasSubstr("input id mismatch"));
  EXPECT_THAT(error([&](const Tensors& a) {
                return Tensors{apply("add", {a[0], filled({2}, 1, DType::F32)}), apply("neg", {w})};
              }),
              HasSubstr("input size mismatch\n  the recording has mul of 2 inputs here, the call made neg of 1"));
  EXPECT_THAT(error([&](const Tensors& a) {
                return Tensors{apply("add", {a[0], w})};
              }),
              HasSubstr("data unreadable\n  the call ends after 1 of 3 recorded ops; next was mul, and it gives "));
  EXPECT_THAT(error([&](const Tensors& a) {
                apply("add", {a[0], w});
                return Tensors{};
              }),
              HasSubstr("mismature end\n  the call ends after 1 of 3 recorded ops; next was mul."));
  EXPECT_THAT(error([&](const Tensors& a) {
                body(a);
                return Tensors{apply("neg", {a[0]})};
              }),
              HasSubstr("too many instructions"));
}

TEST_P(TraceFailures, DtypeMismatchOfACapturedTensor) {
  TensorPtr w = tensor({2}, {1, 2}, DType::I32);
  Traced t([&](const Tensors&) { return Tensors{apply("neg", {w})}; });
  t.record({});
  assign(*w, *filled({2}, 1));
  EXPECT_THAT(trace_error([&] { t.match({}); }), HasSubstr("dtype mismatch: Int32 vs Float32"));
}

// ---- failing and giving up

TEST_P(TraceFailures, AFailedMatchChangesNoState) {
  TensorPtr w = filled({4}, 1), v = filled({4}, 10);
  bool wrong = false;
  Traced t([&](const Tensors& a) {
    assign(*w, *apply("add", {w, a[0]}));
    item(w);  // this much has really been computed when the mismatch comes
    assign(*v, *apply("add", {v, a[0]}));
    return Tensors{apply(wrong ? "exp" : "neg", {w})};
  });
  TensorPtr x = filled({4}, 1);
  t.record({x});
  wrong = true;
  EXPECT_THAT(trace_error([&] { t.match({x}); }), HasSubstr("operator mismatch"));
  EXPECT_EQ(item(w), 2) << "as before the call";
  EXPECT_EQ(item(v), 11);
  wrong = false;
  t.match({x});
  EXPECT_EQ(item(w), 3);
  EXPECT_EQ(item(v), 12);
}

TEST_P(TraceFailures, AnExceptionInTheBodyLeavesEverythingUsable) {
  TensorPtr w = filled({4}, 1);
  bool angry = true;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("add", {w, a[0]});
    assign(*w, *y);
    if (angry) throw Error(ErrorKind::Value, "user's own");
    return Tensors{y};
  });
  TensorPtr x = filled({4}, 1);
  expect_error(ErrorKind::Value, "user's own", [&] { t.record({x}); });
  EXPECT_FALSE(t->usable());
  expect_error(ErrorKind::Env, "trace: nothing was recorded", [&] { t.replay({x}); });
  expect_error(ErrorKind::Env, "trace: nothing was recorded", [&] { t->match_begin({}); });
  expect_error(ErrorKind::Env, "trace: nothing was recorded", [&] { t->graph({}); });
  EXPECT_EQ(active_tracer(), nullptr);
  EXPECT_EQ(item(w), 2) << "recording runs eagerly, so what ran has run";
  angry = false;
  t.record({x});
  angry = true;
  expect_error(ErrorKind::Value, "user's own", [&] { t.match({x}); });
  EXPECT_EQ(item(w), 3) << "a matched call that ended early did nothing";
  angry = false;
  t.match({x});
  t.replay({x});
  EXPECT_EQ(item(w), 5);
}

TEST_P(TraceFailures, AFailingKernelInAProgramLeavesStateAndRuntimeUsable) {
  TensorPtr w = filled({4}, 1);
  g_fail = false;
  Traced t([&](const Tensors& a) {
    assign(*w, *apply("add", {w, a[0]}));
    return Tensors{apply("test_fail", {w})};
  });
  TensorPtr x = filled({4}, 1);
  t.record({x});
  g_fail = true;
  const bool queued = GetParam() == ExecPolicy::Async;  // then an error comes later, and wrapped
  const ErrorKind kind = queued ? ErrorKind::Async : ErrorKind::Value;
  auto failing = [&](const std::function<void()>& call) {
    expect_error(kind, "refuses to work", [&] {
      call();
      sync();
    });
  };
  failing([&] { t.match({x}); });
  const double before = item(w);  // readable: as it was, or updated before the failure
  EXPECT_TRUE(before == 2 || before == 3) << before;
  failing([&] { t.replay({x}); });
  double after = item(w);
  EXPECT_TRUE(after == before || after == before + 1) << after;
  g_fail = false;
  t.replay({x});
  EXPECT_EQ(item(w), after + 1);
  t.match({x});
  EXPECT_EQ(item(w), after + 2);
}

TEST_P(TraceFailures, ReplayThatIsRefusedKeepsTheState) {
  TensorPtr a = filled({4}, 1), b = filled({4}, 1);
  Traced t([&](const Tensors& in) {
    assign(*a, *apply("add", {a, in[0]}));
    assign(*b, *apply("add", {b, in[0]}));
    return Tensors{};
  });
  TensorPtr x = filled({4}, 1);
  t.record({x});
  t.replay({x});
  assign(*b, *filled({5}, 7));  // the second captured tensor no longer fits; the first was already given to the program
  trace_error([&] { t.replay({x}); });
  EXPECT_EQ(item(a), 3);
  EXPECT_EQ(item(apply("add", {a, a})), 6);
  assign(*b, *filled({4}, 7));
  t.replay({x});
  EXPECT_EQ(item(a), 4);
  EXPECT_EQ(item(b), 8);
}

TEST_P(TraceFailures, OutOfMemoryInReplayKeepsTheState) {
  TensorPtr w = filled({1 << 16}, 1);
  Traced t([&](const Tensors& in) {
    TensorPtr big = apply("broadcast_to", {apply("exp", {in[0]})}, make_attrs(ShapeAttrs{{8, 1 << 16}}));
    TensorPtr y = apply("reduce", {apply("sin", {apply("add", {big, w})})}, make_attrs(ReduceAttrs{"sum", {0}, false}));
    assign(*w, *apply("add", {w, in[0]}));
    return Tensors{y};
  });
  TensorPtr x = filled({1 << 16}, 1);
  std::string want = bytes_of(*t.record({x})[0]);
  EXPECT_EQ(item(w), 2);
  for (size_t room : {size_t{1} << 10, size_t{1} << 19, size_t{1} << 20}) {
    Pool::of({}).set_limit(in_use() + room);
    for (bool replay : {true, false}) {
      double before = 0;
      Pool::of({}).set_limit(0);
      before = item(w);
      Pool::of({}).set_limit(in_use() + room);
      try {
        replay ? t.replay({x}) : t.match({x});
        sync();
        Pool::of({}).set_limit(0);
        EXPECT_EQ(item(w), before + 1);
      } catch (const Error& e) {
        Pool::of({}).set_limit(0);
        EXPECT_THAT(e.text(), HasSubstr("memory limit"));
        const double after = item(w);
        EXPECT_TRUE(after == before || after == before + 1) << before << " became " << after;
      }
    }
  }
  assign(*w, *filled({1 << 16}, 1));
  EXPECT_TRUE(bytes_of(*t.replay({x})[0]) == want);
}

TEST_P(TraceFailures, NestedTracesAreRefused) {
  Traced inner([](const Tensors& a) { return Tensors{apply("neg", {a[0]})}; });
  TensorPtr x = filled({2}, 1);
  inner.record({x});
  const char* text = "trace: a traced function cannot be called inside another one.";
  Traced outer([&](const Tensors& a) {
    expect_error(ErrorKind::Env, text, [&] { inner->record_begin({}); });
    expect_error(ErrorKind::Env, text, [&] { inner->match_begin(raw(a)); });
    expect_error(ErrorKind::Env, text, [&] { inner.replay(a); });
    return Tensors{apply("exp", {a[0]})};
  });
  outer.record({x});
  outer.match({x});
  EXPECT_TRUE(inner->usable()) << "a refused call spoils nothing";
  EXPECT_EQ(item(inner.replay({x})[0]), -1);
}

TEST_P(TraceFailures, AbandonedRecordingStopsTracing) {
  {
    auto r = make_ref<Recording>(TraceOptions{});
    r->record_begin({});
    apply("neg", {filled({2}, 1)});
  }
  EXPECT_EQ(active_tracer(), nullptr);
  EXPECT_EQ(item(apply("neg", {filled({2}, 1)})), -1);
}

// With the tracer paused (exclude_from_trace) a value that the open call has not computed cannot be had: an error, not
// a hang.
TEST_P(TraceFailures, PendingValuesOutsideTheTraceAreAnErrorNotAHang) {
  bool first = true;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    if (!first) {
      Tracer* paused = active_tracer();
      set_active_tracer(nullptr);
      expect_error(ErrorKind::Trace, "traced call that is still open", [&] { values(y); });
      expect_error(ErrorKind::Trace, "traced call that is still open", [&] { values(apply("neg", {y})); });
      EXPECT_EQ(item(apply("neg", {a[0]})), 0) << "other work may be done meanwhile";
      set_active_tracer(paused);
    }
    return Tensors{apply("neg", {y})};
  });
  TensorPtr x = filled({2}, 0);
  t.record({x});
  first = false;
  EXPECT_EQ(item(t.match({x})[0]), -1);
}

}  // namespace
}  // namespace mge
