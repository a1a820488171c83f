// Recording, host mode (matching) and replay: the same bits as eager execution.
#include "eager/trace_test_util.h"
#include "ir/text.h"
#include "op/in_build.h"

namespace mge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Trace : public TraceTest {};
INSTANTIATE_TEST_SUITE_P(Policies, Trace, testing::Values(ExecPolicy::Inline, ExecPolicy::Async), policy_name);

TEST_P(Trace, FiveStepsEagerMatchedAndReplayedGiveTheSameBits) {
  for (int opt_level : {0, 2}) {
    std::vector<std::string> want;
    for (const char* mode : {"eager", "match", "replay"}) {
      Model m;
      Traced t([&m](const Tensors& a) { return m.step(a); }, opt_level);
      for (uint32_t i = 0; i < 5; ++i) {
        assign(*m.lr, *scalar(0.1 / (1 + i)));  // a changed learning rate takes effect
        Tensors args = batch(10 + i), out;
        if (std::string(mode) == "eager")
          out = m.step(args);
        else if (i == 0)
          out = t.record(args);
        else
          out = std::string(mode) == "match" ? t.match(args) : t.replay(args);
        ASSERT_EQ(out.size(), 1u);
        std::string got = bytes_of(*out[0]) + m.bytes();
        if (std::string(mode) == "eager")
          want.push_back(got);
        else
          EXPECT_TRUE(got == want[i]) << mode << " step " << i << " opt_level " << opt_level;
      }
    }
  }
}

TEST_P(Trace, MatchAndReplayMayAlternate) {
  Model m, e;
  Traced t([&m](const Tensors& a) { return m.step(a); });
  for (uint32_t i = 0; i < 8; ++i) {
    Tensors args = batch(40 + i);
    e.step(args);
    i == 0 ? t.record(args) : i % 2 ? t.match(args) : t.replay(args);
    ASSERT_TRUE(m.bytes() == e.bytes()) << i;
  }
}

TEST_P(Trace, RecordingAgainReplacesTheOldRecording) {
  int factor = 2;
  Traced t([&](const Tensors& a) { return Tensors{apply("mul", {a[0], scalar(factor)})}; });
  TensorPtr x = filled({2}, 3);
  t.record({x});
  EXPECT_EQ(item(t.replay({x})[0]), 6);
  factor = 5;
  t.record({x});
  EXPECT_EQ(item(t.replay({x})[0]), 15);
  EXPECT_EQ(t->n_ops(), 1u);
}

// ---- what is external, what is constant

TEST_P(Trace, ConstantsAreFedAnewInHostModeAndFixedInReplay) {
  double c = 2;
  Traced t([&](const Tensors& a) { return Tensors{apply("mul", {a[0], scalar(c)})}; });
  TensorPtr x = filled({2}, 3);
  t.record({x});
  c = 10;
  EXPECT_EQ(item(t.match({x})[0]), 30);
  EXPECT_EQ(item(t.replay({x})[0]), 6) << "Python did not run: the recorded number counts";
  EXPECT_TRUE(t->captured().empty()) << "a number made during the call is no captured tensor";
}

TEST_P(Trace, AConstantCellThatIsReassignedKeepsItsFirstValueInTheGraph) {
  Traced t([&](const Tensors& a) {
    TensorPtr acc = scalar(0);
    for (int i = 0; i < 3; ++i) assign(*acc, *apply("add", {acc, a[0]}));
    return Tensors{acc};
  });
  TensorPtr x = scalar(2);
  EXPECT_EQ(item(t.record({x})[0]), 6);
  EXPECT_EQ(item(t.match({x})[0]), 6);
  EXPECT_EQ(item(t.match({scalar(5)})[0]), 15);
  EXPECT_EQ(item(t.replay({scalar(7)})[0]), 21) << "after matching, the constant 0 must still be there";
}

TEST_P(Trace, CapturedTensorsAreReadAtEachCall) {
  TensorPtr w = filled({2}, 3);
  Traced t([&](const Tensors& a) { return Tensors{apply("mul", {a[0], w})}; });
  TensorPtr x = filled({2}, 2);
  t.record({x});
  ASSERT_EQ(t->captured().size(), 1u);
  EXPECT_EQ(t->captured()[0], w.get());
  assign(*w, *filled({2}, 10));
  EXPECT_EQ(item(t.match({x})[0]), 20);
  EXPECT_EQ(item(t.replay({x})[0]), 20);
  assign(*w, *filled({3}, 1));
  EXPECT_THAT(trace_error([&] { t.replay({x}); }),
              HasSubstr("a captured tensor changed from float32[2] to float32[3]"));
  assign(*w, *filled({2}, 4));
  EXPECT_EQ(item(t.replay({x})[0]), 8) << "usable again";
}

TEST_P(Trace, ArgumentsAndConstantsMayBeResults) {
  TensorPtr w = filled({2}, 3);
  Traced t([&](const Tensors& a) { return Tensors{a[0], w, scalar(4), apply("add", {a[0], w})}; });
  TensorPtr x = filled({2}, 2);
  t.record({x});
  TensorPtr y = filled({2}, 5);
  for (bool replay : {true, false}) {
    Tensors out = replay ? t.replay({y}) : t.match({y});
    EXPECT_EQ(item(out[0]), 5);
    EXPECT_EQ(item(out[1]), 3);
    EXPECT_EQ(item(out[2]), 4);
    EXPECT_EQ(item(out[3]), 8);
  }
}

TEST_P(Trace, OneTensorForTwoArguments) {
  Traced t([](const Tensors& a) { return Tensors{apply("sub", {a[0], a[1]})}; });
  TensorPtr x = filled({2}, 5), y = filled({2}, 3);
  t.record({x, y});
  EXPECT_EQ(item(t.match({x, x})[0]), 0) << "two arguments may happen to be one tensor";
  EXPECT_EQ(item(t.replay({x, x})[0]), 0);
  EXPECT_EQ(item(t.match({y, x})[0]), -2);

  Traced same([](const Tensors& a) { return Tensors{apply("sub", {a[0], a[1]})}; });
  same.record({x, x});  // now the recording cannot tell them apart: other calls must be refused, not answered wrongly
  EXPECT_EQ(item(same.match({y, y})[0]), 0);
  EXPECT_EQ(item(same.replay({y, y})[0]), 0);
  EXPECT_THAT(trace_error([&] { same.replay({x, y}); }), HasSubstr("argument"));
  EXPECT_THAT(trace_error([&] { same.match({x, y}); }), HasSubstr("argument"));
}

TEST_P(Trace, ReplayChecksItsArguments) {
  Traced t([](const Tensors& a) { return Tensors{apply("exp", {a[0]})}; });
  t.record({filled({2}, 0)});
  EXPECT_THAT(trace_error([&] { t.replay({filled({3}, 0)}); }),
              HasSubstr("argument 0 changed from float32[2] to float32[3]"));
  EXPECT_THAT(trace_error([&] { t.replay({filled({2}, 0, DType::F64)}); }), HasSubstr("argument 0 changed"));
  EXPECT_THAT(trace_error([&] { t.replay({}); }), HasSubstr("takes 1 tensor arguments; got 0"));
  EXPECT_THAT(trace_error([&] {
                t.replay({filled({2}, 0), filled({2}, 0)});
              }),
              HasSubstr("takes 1 tensor arguments; got 2"));
  EXPECT_THAT(trace_error([&] { t.match({}); }), HasSubstr("takes 1 tensor arguments; got 0"));
  EXPECT_EQ(item(t.replay({filled({2}, 0)})[0]), 1);
}

TEST_P(Trace, HostModeTakesOtherShapesWhereNoOpNamesOne) {
  TensorPtr w = Model::random({5, 4}, 1);
  Body body = [&](const Tensors& a) {
    return Tensors{ptr(reduce(unary("tanh", matmul(val(a[0]), val(w), false, true)), "sum", {0}, false))};
  };
  Traced t(body);
  t.record({Model::random({3, 4}, 2)});
  for (int64_t n : {1, 7, 3, 7, 0, 1}) {
    TensorPtr x = Model::random({n, 4}, 3);
    EXPECT_TRUE(bytes_of(*t.match({x})[0]) == bytes_of(*body({x})[0])) << n;
  }
}

// A training step broadcasts gradients to recorded shapes: another batch size is refused, and nothing has happened.
TEST_P(Trace, HostModeRefusesAShapeThatAnOpNames) {
  Model m;
  Traced t([&m](const Tensors& a) { return m.step(a); });
  t.record(batch(70, 3));
  std::string before = m.bytes();
  EXPECT_THAT(trace_error([&] { t.match(batch(80, 7)); }),
              HasSubstr("operator mismatch\n  the recording has broadcast_to{shape=[3,2]} here, the call made "
                        "broadcast_to{shape=[7,2]}"));
  EXPECT_FALSE(any_grad_session());
  EXPECT_TRUE(m.bytes() == before);
}

TEST_P(Trace, NanAttributesMatchThemselves) {
  Traced t([](const Tensors& a) {
    return Tensors{apply("add", {a[0], apply("full", {}, make_attrs(FullAttrs{{2}, NAN, DType::F32}))})};
  });
  t.record({filled({2}, 0)});
  EXPECT_TRUE(std::isnan(item(t.match({filled({2}, 0)})[0])));
}

// ---- state

TEST_P(Trace, CommitsReplaceStateAndOldValuesStayReadable) {
  TensorPtr w = filled({64}, 1);
  Traced t([&](const Tensors& a) {
    TensorPtr old = detach(*w);
    assign(*w, *apply("add", {w, a[0]}));
    assign(*w, *apply("add", {w, a[0]}));  // the last assignment counts
    return Tensors{old, w};
  });
  TensorPtr x = filled({64}, 1);
  t.record({x});
  double now = 3;
  for (bool replay : {true, false, true, true}) {
    TensorPtr before = detach(*w);
    Tensors out = replay ? t.replay({x}) : t.match({x});
    EXPECT_EQ(item(out[0]), now) << "the old value is a result";
    EXPECT_EQ(item(before), now) << "somebody else held it: no update in place";
    now += 2;
    EXPECT_EQ(item(out[1]), now);
    EXPECT_EQ(item(w), now);
  }
  t.replay({x});  // nobody holds it now
  EXPECT_EQ(item(w), now + 2);
}

TEST_P(Trace, StateMaySwapAndBeSetFromArguments) {
  TensorPtr a = filled({4}, 1), b = filled({4}, 2), last = filled({4}, 0);
  Traced t([&](const Tensors& in) {
    TensorPtr keep = detach(*a);
    assign(*a, *b);
    assign(*b, *keep);
    assign(*last, *in[0]);
    return Tensors{apply("add", {a, b})};
  });
  t.record({filled({4}, 9)});
  EXPECT_EQ(item(a), 2);
  for (int i = 1; i < 5; ++i) {
    double x = 10 + i;
    i % 2 ? t.replay({filled({4}, x)}) : t.match({filled({4}, x)});
    EXPECT_EQ(item(a), i % 2 ? 1 : 2) << i;
    EXPECT_EQ(item(b), i % 2 ? 2 : 1) << i;
    EXPECT_EQ(item(last), x);
  }
}

// Two cells that start from one shared value are two pieces of state.
TEST_P(Trace, CellsThatShareAValueAreCommittedSeparately) {
  TensorPtr a = filled({4}, 1), b = detach(*a);
  Traced t([&](const Tensors& in) {
    assign(*a, *apply("add", {a, in[0]}));
    assign(*b, *apply("sub", {b, in[0]}));
    return Tensors{a, b};
  });
  TensorPtr x = filled({4}, 1);
  t.record({x});
  for (int i = 2; i < 6; ++i) {
    i % 2 ? t.replay({x}) : t.match({x});
    EXPECT_EQ(item(a), 1 + i) << i;
    EXPECT_EQ(item(b), 1 - i) << i;
  }
}

TEST_P(Trace, UpdatesThroughDispatchUpdateAreCommitted) {
  TensorPtr w = filled({4}, 0);
  Traced t([&](const Tensors& in) {
    Tensor *ins[] = {w.get(), in[0].get()}, *cells[] = {w.get()};
    dispatch_update(op_of("add"), nullptr, ins, cells);
    return Tensors{};
  });
  TensorPtr x = filled({4}, 1);
  t.record({x});
  t.replay({x});
  t.match({x});
  t.replay({x});
  EXPECT_EQ(item(w), 4);
}

// ---- reading in the middle

TEST_P(Trace, ReadingAValueInTheMiddleEndsASegment) {
  std::vector<double> seen;
  TensorPtr w = filled({2}, 1);
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("mul", {a[0], w});
    seen.push_back(item(y));
    TensorPtr z = apply("add", {y, y});
    seen.push_back(item(z));
    seen.push_back(item(y));  // again, later
    assign(*w, *z);
    return Tensors{apply("exp", {apply("neg", {z})})};
  });
  t.record({filled({2}, 3)});
  EXPECT_THAT(seen, ElementsAre(3, 6, 3));
  seen.clear();
  EXPECT_FLOAT_EQ(static_cast<float>(item(t.match({filled({2}, 2)})[0])), std::exp(-24.0f));
  EXPECT_THAT(seen, ElementsAre(12, 24, 12));
  EXPECT_EQ(item(w), 24);
}

TEST_P(Trace, HostControlFlowFollowsTheValuesOrIsRefused) {
  auto body = [](const Tensors& a) {
    TensorPtr s = apply("reduce", {a[0]}, make_attrs(ReduceAttrs{"sum", {}, false}));
    return Tensors{apply(item(s) > 0 ? "neg" : "exp", {a[0]})};
  };
  Traced t(body);
  t.record({filled({2}, 3)});
  EXPECT_EQ(item(t.match({filled({2}, 5)})[0]), -5);
  EXPECT_THAT(trace_error([&] { t.match({filled({2}, -1)}); }),
              HasSubstr("operator mismatch\n  the recording has neg here, the call made exp"));
  EXPECT_EQ(item(t.match({filled({2}, 7)})[0]), -7) << "still usable";
}

TEST_P(Trace, ReadingWhatWasNotReadIsAnError) {
  bool curious = false;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    if (curious) item(y);
    return Tensors{apply("neg", {y})};
  });
  TensorPtr x = filled({2}, 0);
  t.record({x});
  curious = true;
  EXPECT_THAT(trace_error([&] { t.match({x}); }),
              HasSubstr("value unreadable\n  this value was not read in the recorded call"));
  curious = false;
  EXPECT_EQ(item(t.match({x})[0]), -1);
}

TEST_P(Trace, ReadingEarlierThanRecordedIsAnError) {
  bool early = false;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    if (early) item(y);
    TensorPtr z = apply("neg", {y});
    item(y);
    return Tensors{z};
  });
  TensorPtr x = filled({2}, 0);
  t.record({x});
  early = true;
  EXPECT_THAT(trace_error([&] { t.match({x}); }), HasSubstr("the value is read earlier than in the recorded call"));
}

TEST_P(Trace, ValuesThatWereNotKeptAreUnreadableAfterwards) {
  TensorPtr stolen;
  bool steal = false;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    if (steal) stolen = y;
    return Tensors{apply("neg", {y})};
  });
  TensorPtr x = filled({2}, 0);
  t.record({x});
  steal = true;
  t.match({x});
  EXPECT_EQ(
      trace_error([&] { values(stolen); }),
      "trace error because data unreadable\n  the traced program does not keep this value, since the recorded call "
      "did not. "
      "Return it from the traced function.");
  trace_error([&] { values(apply("neg", {stolen})); });  // neither are values made from it

  Traced keeper([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    stolen = y;  // held when the recorded call ended
    return Tensors{apply("neg", {y})};
  });
  keeper.record({x});
  keeper.match({filled({2}, 1)});
  EXPECT_NEAR(item(stolen), std::exp(1.0), 1e-6);
}

// ---- what a replay depends on

TEST_P(Trace, AssignedArgumentsAreTheCallers) {
  Traced t([&](const Tensors& a) {
    assign(*a[0], *apply("add", {a[0], a[1]}));
    return Tensors{apply("neg", {a[0]})};
  });
  t.record({filled({2}, 0), filled({2}, 1)});
  for (int i = 1; i < 4; ++i) {
    TensorPtr x = filled({2}, i), y = filled({2}, 10);
    EXPECT_EQ(item(t.replay({x, y})[0]), -(i + 10));
    EXPECT_EQ(item(x), i + 10);
    EXPECT_EQ(item(y), 10);
  }
}

TEST_P(Trace, AcceptsWhatIsTheSameCall) {
  TensorPtr w = filled({2}, 3), x = filled({2}, 1), y = filled({2}, 2);
  Traced t([&](const Tensors& a) { return Tensors{apply("mul", {a[0], w})}; });
  t.record({x});
  auto accepts = [&](Tensors args) { return t->accepts(raw(args)); };
  EXPECT_TRUE(accepts({y}));
  EXPECT_FALSE(accepts({w})) << "an argument that is also captured";
  EXPECT_FALSE(accepts({x, y}));
  assign(*w, *filled({1}, 3));
  EXPECT_FALSE(accepts({y})) << "a captured tensor of another shape";
  assign(*w, *filled({2}, 4));
  EXPECT_TRUE(accepts({y}));
  Tensor* outside[] = {x.get()};
  t->pin_arguments(outside);
  EXPECT_TRUE(accepts({x}));
  EXPECT_FALSE(accepts({y})) << "the function may reach the recorded one in another way";
}

TEST_P(Trace, AReplayRefusesAValueReadOnTheHost) {
  TensorPtr w = filled({1}, 2);
  TensorPtr* read = nullptr;
  TensorPtr of_constants;
  Traced t(
      [&](const Tensors& a) {
        of_constants = apply("neg", {scalar(1)});
        EXPECT_EQ(item(of_constants), -1) << "the same in every call";
        EXPECT_EQ(item(w), 2) << "watched";
        TensorPtr y = apply("neg", {a[0]}), x = a[0];
        item(read ? *read : y);
        of_constants = nullptr;
        return Tensors{y};
      },
      2, true);
  TensorPtr x = filled({1}, 5);
  EXPECT_THAT(trace_error([&] { t.record({x}); }), testing::StartsWith("trace error because data unreadable\n"));
  read = &x;
  EXPECT_THAT(trace_error([&] { t.record({x}); }), HasSubstr("without_host=True"));
  read = &w;
  t.record({x});
  EXPECT_TRUE(t->accepts(raw({x})));
  assign(*w, *filled({1}, 2));
  EXPECT_FALSE(t->accepts(raw({x}))) << "a tensor that was read has got another value";
}

TEST_P(Trace, WhatOutlivesTheCallCannotBeReplayed) {
  Tensors kept;
  bool keep = true;
  Traced t(
      [&](const Tensors& a) {
        TensorPtr y = apply("neg", {a[0]});
        if (keep) kept.push_back(y);
        return Tensors{apply("exp", {y})};
      },
      2, true);
  t.record({filled({2}, 0)});
  EXPECT_THAT(t->host_only(), HasSubstr("kept without being returned"));
  keep = false;
  t.record({filled({2}, 0)});
  EXPECT_EQ(t->host_only(), "");
}

TEST_P(Trace, ExcludedPartsSeeValuesAndMayVary) {
  int calls = 0;
  Traced t([&](const Tensors& a) {
    TensorPtr y = apply("exp", {a[0]});
    Tracer* open = active_tracer();
    open->exclude_begin();
    set_active_tracer(nullptr);
    EXPECT_EQ(item(y), 1);
    if (++calls % 2 == 0) y = apply("neg", {y});
    open->exclude_end();
    set_active_tracer(open);
    return Tensors{apply("mul", {y, y}), apply("neg", {y})};
  });
  TensorPtr x = filled({2}, 0);
  EXPECT_EQ(item(t.record({x})[1]), -1);
  for (int i = 0; i < 4; ++i) {
    Tensors out = t.match({x});
    EXPECT_EQ(item(out[0]), 1);
    EXPECT_EQ(item(out[1]), calls % 2 ? -1 : 1);
  }
}

TEST_P(Trace, ACellTakesThePlaceOfAnother) {
  TensorPtr g = filled({2}, 1);
  Traced t([&](const Tensors& a) {
    assign(*g, *apply("add", {g, a[0]}));
    return Tensors{};
  });
  t.record({filled({2}, 1)});
  TensorPtr fresh = filled({2}, 10);
  t->rebind(*g, *fresh);
  t.replay({filled({2}, 5)});
  EXPECT_EQ(item(fresh), 15);
  EXPECT_EQ(item(g), 2);
}

// ---- memory, graphs

TEST_P(Trace, ARecordingHoldsNoArgumentsAndNoOldState) {
  TensorPtr w = filled({1024}, 1);
  size_t before = in_use();
  {
    Traced t([&](const Tensors& a) {
      TensorPtr y = apply("add", {w, a[0]});
      assign(*w, *y);
      return Tensors{apply("exp", {y})};
    });
    t.record({filled({1024}, 1)});
    sync();
    EXPECT_EQ(in_use(), before) << "the first call's argument and w's first value live on";
    auto after = [&](int calls, bool replay) {
      for (int i = 0; i < calls; ++i) replay ? t.replay({filled({1024}, 1)}) : t.match({filled({1024}, 1)});
      sync();
      return in_use();
    };
    size_t matched = after(3, false);
    EXPECT_EQ(after(5, false), matched);
    size_t replayed = after(1, true);
    EXPECT_EQ(after(5, true), replayed);
  }
  EXPECT_EQ(in_use(), before) << "programs and arenas are freed with the recording";
}

TEST_P(Trace, GraphNamesInputsVarsAndCommits) {
  fake_locations();
  TensorPtr w = filled({2}, 1);
  Traced t([&](const Tensors& a) {
    g_line = 31;
    TensorPtr y = apply("mul", {a[0], w});
    assign(*w, *y);
    return Tensors{apply("neg", {y})};
  });
  t.record({filled({2}, 3)});
  t->set_name(w.get(), "w");
  std::string text = ir::print(t->graph({}));
  EXPECT_THAT(text, HasSubstr("vars(%w: f32[2])"));
  EXPECT_THAT(text, HasSubstr("mul %arg_0, %w"));
  EXPECT_THAT(text, HasSubstr("commits(%w <- "));
  EXPECT_THAT(text, HasSubstr("train.py:31"));
  Recording::Export e;
  e.as_constants = true;
  e.arg_names = {"data"};
  e.result_names = {"prob"};
  text = ir::print(t->graph(e));
  EXPECT_THAT(text, HasSubstr("%data: f32[2]"));
  EXPECT_THAT(text, testing::Not(HasSubstr("vars(")));
  EXPECT_THAT(text, HasSubstr("prob"));
  EXPECT_THAT(text, HasSubstr("00004040")) << "w is 3 now, and written into the graph";
}

// ---- random bodies

/// A deterministic body of random ops over two arguments and three state cells, with reads now and then.
Tensors random_body(uint32_t seed, const Tensors& args, const Tensors& state, std::vector<double>* reads) {
  std::mt19937 rng(seed);
  auto below = [&](size_t n) { return rng() % n; };
  Tensors live = args;
  live.insert(live.end(), state.begin(), state.end());
  for (int i = 0; i < 30; ++i) {
    TensorPtr x = live[below(live.size())], y = live[below(live.size())];
    const Shape s = x->meta().shape;
    switch (below(9)) {
      case 0:
        live.push_back(apply("tanh", {x}));
        break;
      case 1:
        live.push_back(apply("mul", {x, scalar(0.5 + static_cast<double>(below(3)))}));
        break;
      case 2:
        live.push_back(apply("transpose", {x}, make_attrs(PermAttrs{{1, 0}})));
        break;
      case 3:
        live.push_back(apply("tanh", {apply("matmul", {x, y})}));
        break;
      case 4:
        live.push_back(apply("add", {x, apply("reduce", {y}, make_attrs(ReduceAttrs{"mean", {1}, true}))}));
        break;
      case 5:
        live.push_back(apply("slice", {apply("concat", {x, y}, make_attrs(AxisAttrs{0}))},
                             make_attrs(SliceAttrs{{0}, {7}, {-1}, {-2}})));
        break;
      case 6:
        live.push_back(apply("reshape", {apply("reshape", {x}, make_attrs(ShapeAttrs{{2, 8}}))},
                             make_attrs(ShapeAttrs{to_ints(s)})));
        break;
      case 7:
        assign(*state[below(state.size())], *apply("tanh", {apply("add", {x, y})}));
        break;
      default:
        if (reads && below(3) == 0) reads->push_back(item(x));
        live.push_back(apply("sub", {x, y}));
    }
    if (live.size() > 9) live.erase(live.begin() + static_cast<int64_t>(below(live.size())));
  }
  return {live.back(), live[live.size() / 2], apply("neg", {state[0]})};
}

TEST_P(Trace, RandomBodiesEagerMatchedReplayed) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    bool with_reads = seed % 2;
    std::vector<std::string> want;
    std::vector<double> want_reads;
    for (const char* mode : {"eager", "match", "replay"}) {
      if (with_reads && std::string(mode) == "replay") continue;
      Tensors state{Model::random({4, 4}, 1), Model::random({4, 4}, 2), Model::random({4, 4}, 3)};
      std::vector<double> reads;
      Body body = [&](const Tensors& a) { return random_body(seed, a, state, with_reads ? &reads : nullptr); };
      Traced t(body);
      for (uint32_t call = 0; call < 4; ++call) {
        Tensors args{Model::random({4, 4}, 100 + call), Model::random({4, 4}, 200 + call)};
        Tensors out = std::string(mode) == "eager"   ? body(args)
                      : call == 0                    ? t.record(args)
                      : std::string(mode) == "match" ? t.match(args)
                                                     : t.replay(args);
        std::string got;
        for (auto& o : out) got += bytes_of(*o);
        for (auto& c : state) got += bytes_of(*c);
        if (std::string(mode) == "eager")
          want.push_back(got);
        else
          ASSERT_TRUE(got == want[call]) << "seed " << seed << " call " << call << " " << mode;
      }
      if (std::string(mode) == "eager") want_reads = reads;
      ASSERT_EQ(reads, want_reads) << "seed " << seed << " " << mode;
    }
  }
}

}  // namespace
}  // namespace mge
