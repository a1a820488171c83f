// Gradients: against finite differences, nested, grouped; what the tape keeps and when it lets go; its errors.
#include "eager/eager_test_util.h"

namespace mge {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

class Tape : public EagerTest {
 protected:
  static Val val(const TensorPtr& t) { return EagerEmitter::get().val(t); }
  static TensorPtr ptr(const Val& v) { return TensorPtr(EagerEmitter::tensor(v)); }
  static TensorPtr f64(const Shape& s, const std::vector<double>& v) { return tensor(s, v, DType::F64); }
  static TensorPtr ramp(const Shape& s, double from, double step) {
    std::vector<double> v(static_cast<size_t>(s.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = from + step * static_cast<double>((i * 7) % 11);
    return f64(s, v);
  }
  static void backward(GradSession& s, const TensorPtr& y) {
    TensorPtr dy = filled(y->meta().shape, 1, y->meta().dtype);
    Tensor *ys[] = {y.get()}, *dys[] = {dy.get()};
    s.backward(ys, dys);
  }
};

using Fn = std::function<Val(const std::vector<Val>&)>;  // inputs to one scalar

double run_scalar(const Fn& f, const std::vector<TensorPtr>& in) {
  std::vector<Val> v;
  for (auto& t : in) v.push_back(EagerEmitter::get().val(t));
  return item(TensorPtr(EagerEmitter::tensor(f(v))));
}

/// Gradients by the tape, in place of which null stands for "none".
std::vector<TensorPtr> tape_gradients(const Fn& f, const std::vector<TensorPtr>& in) {
  std::vector<TensorPtr> grads(in.size());
  GradSession s;
  s.start();
  for (size_t i = 0; i < in.size(); ++i) s.attach(*in[i], [&grads, i](TensorPtr g) { grads[i] = g; });
  std::vector<Val> v;
  for (auto& t : in) v.push_back(EagerEmitter::get().val(t));
  TensorPtr y(EagerEmitter::tensor(f(v))), dy = scalar(1, DType::F64);
  Tensor *ys[] = {y.get()}, *dys[] = {dy.get()};
  s.backward(ys, dys);
  return grads;
}

void expect_gradients(const Fn& f, const std::vector<TensorPtr>& in, double tolerance = 1e-6) {
  std::vector<TensorPtr> grads = tape_gradients(f, in);
  constexpr double h = 1e-5;
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_TRUE(grads[i]) << "no gradient for input " << i;
    ASSERT_EQ(grads[i]->meta().shape.str(), in[i]->meta().shape.str());
    std::vector<double> x = values(in[i]), got = values(grads[i]);
    for (size_t k = 0; k < x.size(); ++k) {
      auto at = [&](double d) {
        std::vector<TensorPtr> moved = in;
        std::vector<double> y = x;
        y[k] += d;
        moved[i] = tensor(in[i]->meta().shape, y, DType::F64);
        return run_scalar(f, moved);
      };
      double want = (at(h) - at(-h)) / (2 * h);
      EXPECT_NEAR(got[k], want, tolerance * std::max(1.0, std::abs(want))) << "input " << i << " element " << k;
    }
  }
}

Val sum(const Val& x) { return reduce(x, "sum", {}, false); }

TEST_F(Tape, CompositeFunctionsMatchFiniteDifferences) {
  expect_gradients(
      [](auto& v) { return sum(unary("tanh", matmul(v[0], v[1], false, false) + v[2]) * unary("exp", -v[2])); },
      {ramp({3, 4}, -0.5, 0.1), ramp({4, 2}, 0.3, -0.07), ramp({2}, 0.1, 0.2)});
  expect_gradients([](auto& v) { return sum(v[0] / (unary("square", v[1]) + 1) - v[0] * 3); },
                   {ramp({2, 3}, 1, 0.3), ramp({3}, -1, 0.25)});
  expect_gradients([](auto& v) { return sum(unary("sigmoid", v[0]) * v[0] * v[0]); }, {ramp({5}, -1, 0.3)});
  // x reaches the result by three ways.
  expect_gradients([](auto& v) { return sum(v[0] * v[0] + unary("exp", v[0]) * v[0]); }, {ramp({4}, -1, 0.4)});
}

TEST_F(Tape, ShapeOpsPassGradientsThrough) {
  auto weigh = [](const Val& y) {  // every element gets a weight of its own
    std::vector<double> w(static_cast<size_t>(y.shape().numel()));
    for (size_t i = 0; i < w.size(); ++i) w[i] = 0.5 + static_cast<double>(i);
    return sum(y * y * EagerEmitter::get().val(tensor(y.shape(), w, DType::F64)));
  };
  auto emit = [](const Val& x, const char* op, Attrs a) { return x.em->emit1(op, {x}, a); };
  TensorPtr x = ramp({2, 3, 4}, -1, 0.2);
  expect_gradients([&](auto& v) { return weigh(reshape(v[0], Shape{4, 6})); }, {x});
  expect_gradients([&](auto& v) { return weigh(transpose(v[0], {2, 0, 1})); }, {x});
  expect_gradients([&](auto& v) { return weigh(broadcast_to(v[0], Shape{2, 2, 3, 4})); }, {x});
  expect_gradients([&](auto& v) { return weigh(broadcast_to(v[0], Shape{3, 4})); }, {ramp({3, 1}, 1, 0.5)});
  expect_gradients([&](auto& v) { return weigh(emit(v[0], "expand_dims", make_attrs(AxesAttrs{{0, 2}}))); }, {x});
  expect_gradients([&](auto& v) { return weigh(emit(v[0], "squeeze", make_attrs(AxesAttrs{}))); },
                   {ramp({1, 3, 1}, 1, 0.5)});
  expect_gradients(
      [&](auto& v) {
        return weigh(emit(v[0], "slice", make_attrs(SliceAttrs{{1, 2}, {2, 0}, {-1, 4}, {-1, 3}})));
      },
      {x});
  expect_gradients([&](auto& v) { return weigh(emit(v[0], "copy", nullptr)); }, {x});
  expect_gradients(
      [&](auto& v) {
        return weigh(v[0].em->emit1("set_slice", {v[0], v[1]}, make_attrs(SliceAttrs{{1}, {1}, {3}, {1}})));
      },
      {x, ramp({2, 2, 4}, 0, 0.1)});
  expect_gradients(
      [&](auto& v) {
        return weigh(v[0].em->emit1("concat", {v[0], v[1], v[0]}, make_attrs(AxisAttrs{-2})));
      },
      {x, ramp({2, 1, 4}, 0, 0.1)});
}

// A mask of 64 bits once decided which inputs of concat want a gradient.
TEST_F(Tape, ConcatOfAHundredTensors) {
  std::vector<TensorPtr> xs;
  for (int i = 0; i < 100; ++i) xs.push_back(f64({2}, {1.0 * i, 2.0}));
  std::vector<TensorPtr> grads = tape_gradients(
      [](auto& v) {
        Val y;
        v[0].em->emit(op_of("concat"), make_attrs(AxisAttrs{0}), v, {&y, 1});
        return sum(y * y);
      },
      xs);
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(grads[i]) << i;
    EXPECT_THAT(values(grads[i]), ElementsAre(2.0 * static_cast<double>(i), 4.0)) << i;
  }
}

TEST_F(Tape, MixedDtypesGetGradientsOfTheirOwnDtype) {
  TensorPtr a = tensor({2}, {1, 2}, DType::F32), b = tensor({2}, {3, 4}, DType::F64), ga, gb;
  GradSession s;
  s.start();
  s.attach(*a, [&](TensorPtr g) { ga = g; });
  s.attach(*b, [&](TensorPtr g) { gb = g; });
  TensorPtr y = apply("mul", {a, b});
  EXPECT_EQ(y->meta().dtype, DType::F64);
  backward(s, y);
  EXPECT_EQ(ga->meta().dtype, DType::F32);
  EXPECT_EQ(gb->meta().dtype, DType::F64);
  EXPECT_THAT(values(ga), ElementsAre(3, 4));
  EXPECT_THAT(values(gb), ElementsAre(1, 2));
}

TEST_F(Tape, IntegersAndUntrackedInputsGetNone) {
  TensorPtr x = tensor({2}, {1, 2}), i = tensor({2}, {3, 4}, DType::I32), gx;
  bool told = false;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  s.attach(*i, [&](TensorPtr) { told = true; });
  TensorPtr y = apply("mul", {x, i});
  backward(s, y);
  EXPECT_THAT(values(gx), ElementsAre(3, 4));
  EXPECT_FALSE(told) << "an integer has no gradient";
  TensorPtr c = apply("lt", {x, x});
  EXPECT_TRUE(c->links.empty()) << "comparisons are differentiable nowhere";
}

TEST_F(Tape, AttachedButUnreachedTensorsAreNotTold) {
  TensorPtr x = filled({2}, 1), u = filled({2}, 1);
  int told_x = 0, told_u = 0;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr) { ++told_x; });
  s.attach(*u, [&](TensorPtr) { ++told_u; });
  TensorPtr unused = apply("exp", {u});
  backward(s, apply("exp", {x}));
  EXPECT_EQ(told_x, 1);
  EXPECT_EQ(told_u, 0);
  TensorPtr foreign = filled({2}, 1);
  backward(s, foreign);  // y without history contributes nothing, silently
}

TEST_F(Tape, GradientIsToldOnceWhenComplete) {
  TensorPtr x = f64({2}, {1, 2});
  std::vector<double> told;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { told.push_back(values(g)[0]); });
  TensorPtr a = apply("exp", {x}), b = apply("mul", {x, x}), c = apply("add", {a, b}), d = apply("add", {c, x});
  backward(s, d);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_DOUBLE_EQ(told[0], std::exp(1.0) + 2 + 1);
}

TEST_F(Tape, AttachOnAnIntermediatePassesTheGradientOn) {
  TensorPtr x = f64({2}, {1, 2}), gx, gm;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  TensorPtr m = apply("mul", {x, x});
  s.attach(*m, [&](TensorPtr g) { gm = g; });
  EXPECT_TRUE(s.is_attached(*m));
  TensorPtr y = apply("mul", {m, m});
  backward(s, y);
  EXPECT_THAT(values(gm), ElementsAre(2, 8));
  EXPECT_THAT(values(gx), ElementsAre(4, 32));
}

TEST_F(Tape, AttachWithoutACallbackIsHarmless) {
  TensorPtr x = f64({2}, {1, 2}), gx;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  TensorPtr m = apply("mul", {x, x});
  s.attach(*m, nullptr);
  backward(s, apply("mul", {m, m}));
  EXPECT_THAT(values(gx), ElementsAre(4, 32));
}

TEST_F(Tape, SecondOrderByNestedSessions) {
  // inner: g = d/dx sum(tanh(x) * x^2); outer: d/dx sum(g * g), against finite differences of the inner gradient.
  Fn f = [](auto& v) { return sum(unary("tanh", v[0]) * v[0] * v[0]); };
  auto inner_value = [&](const TensorPtr& x) {
    std::vector<double> g = values(tape_gradients(f, {x})[0]);
    double s = 0;
    for (double d : g) s += d * d;
    return s;
  };
  std::vector<double> at{-0.7, 0.2, 0.9};
  TensorPtr x = f64({3}, at), second;
  GradSession outer;
  outer.start();
  outer.attach(*x, [&](TensorPtr g) { second = g; });
  TensorPtr first = tape_gradients(f, {x})[0];  // its session is nested inside `outer`
  TensorPtr z = ptr(sum(val(first) * val(first)));
  backward(outer, z);
  ASSERT_TRUE(second);
  std::vector<double> got = values(second);
  for (size_t k = 0; k < 3; ++k) {
    auto moved = [&](double d) {
      std::vector<double> y = at;
      y[k] += d;
      return inner_value(f64({3}, y));
    };
    EXPECT_NEAR(got[k], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-5) << k;
  }
}

TEST_F(Tape, ThirdOrder) {
  TensorPtr x = f64({1}, {0.7});
  std::vector<TensorPtr> g(3);
  GradSession s1, s2, s3;
  GradSession* sessions[] = {&s1, &s2, &s3};
  for (int i = 0; i < 3; ++i) {
    sessions[i]->start();
    sessions[i]->attach(*x, [&g, i](TensorPtr t) { g[static_cast<size_t>(i)] = t; });
  }
  EXPECT_EQ(s3.level(), 3);
  TensorPtr y = apply("sin", {x});
  backward(s3, y);
  backward(s2, g[2]);
  backward(s1, g[1]);
  EXPECT_NEAR(item(g[2]), std::cos(0.7), 1e-12);
  EXPECT_NEAR(item(g[1]), -std::sin(0.7), 1e-12);
  EXPECT_NEAR(item(g[0]), -std::cos(0.7), 1e-12);
}

TEST_F(Tape, InnerGradientsAreInvisibleToLaterSessionsAndTheGroup) {
  TensorPtr x = f64({1}, {3}), g1, g2;
  GradSession s1, s2;
  GradSession::begin_group();
  s1.start();
  s2.start();
  GradSession::end_group();
  EXPECT_EQ(s1.level(), s2.level());
  s1.attach(*x, [&](TensorPtr g) { g1 = g; });
  s2.attach(*x, [&](TensorPtr g) { g2 = g; });
  TensorPtr y = apply("mul", {x, x});
  backward(s1, y);
  EXPECT_EQ(item(g1), 6);
  EXPECT_FALSE(s2.is_attached(*g1)) << "gradients of one are constants to the others of its group";
  backward(s2, y);  // both may start from the same y
  EXPECT_EQ(item(g2), 6);
  GradSession later;
  later.start();
  EXPECT_GT(later.level(), s1.level());
  later.stop();
}

TEST_F(Tape, SessionsOpenedLaterDoNotSeeAnEarlierBackward) {
  TensorPtr x = f64({1}, {3}), g_outer, g_inner;
  GradSession outer, inner;
  outer.start();
  outer.attach(*x, [&](TensorPtr g) { g_outer = g; });
  inner.start();
  inner.attach(*x, [&](TensorPtr g) { g_inner = g; });
  TensorPtr y = apply("mul", {x, x});
  backward(outer, y);
  EXPECT_FALSE(inner.is_attached(*g_outer));
  backward(inner, y);
  EXPECT_EQ(item(g_inner), 6);
}

TEST_F(Tape, SuppressedOpsAreNotRecorded) {
  TensorPtr x = f64({1}, {3}), gx;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  s.suppress();
  TensorPtr c = apply("mul", {x, x});
  s.resume();
  TensorPtr y = apply("mul", {x, c});
  backward(s, y);
  EXPECT_EQ(item(gx), 9) << "c counts as a constant";
  TensorPtr d = detach(*x);
  EXPECT_TRUE(d->links.empty());
}

// ---- errors

TEST_F(Tape, BackwardWithoutStart) {
  TensorPtr x = filled({2}, 1);
  GradSession s;
  expect_error(ErrorKind::Env,
               "no computation history. did you forget record() or call a method that clears the history?",
               [&] { backward(s, x); });
  expect_error(ErrorKind::Env, "attach: the session is not recording.", [&] { s.attach(*x, nullptr); });
  s.start();
  expect_error(ErrorKind::Env, "already recording", [&] { s.start(); });
  s.stop();
  s.stop();
  expect_error(ErrorKind::Env, "no computation history", [&] { backward(s, x); });
}

TEST_F(Tape, BackwardArgumentsMustFit) {
  TensorPtr x = filled({2, 3}, 1), wrong = filled({2}, 1);
  GradSession s;
  s.start();
  Tensor *ys[] = {x.get()}, *dys[] = {wrong.get()};
  expect_error(ErrorKind::Value, "backward: y has shape [2,3] but dy [2].", [&] { s.backward(ys, dys); });
  expect_error(ErrorKind::Value, "backward: 1 tensors but 0 gradients.", [&] { s.backward(ys, {}); });
}

TEST_F(Tape, BackwardTwiceThroughTheSameOpsIsAnError) {
  TensorPtr x = f64({2}, {1, 2}), gx;
  int told = 0;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g, ++told; });
  TensorPtr m = apply("mul", {x, x}), y = apply("exp", {m});
  backward(s, y);
  EXPECT_EQ(told, 1);
  expect_error(ErrorKind::Env, "mul", [&] { backward(s, apply("neg", {m})); });
  expect_error(ErrorKind::Env, "exp", [&] { backward(s, y); });
  EXPECT_EQ(told, 1);
  TensorPtr fresh = apply("mul", {x, x});  // new work on the attached tensor is fine
  backward(s, fresh);
  EXPECT_EQ(told, 2);
  EXPECT_THAT(values(gx), ElementsAre(2, 4));
}

TEST_F(Tape, AnOpWithoutARuleSaysSo) {
  TensorPtr x = filled({2}, 1), gx;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  TensorPtr y = apply("test_no_grad_rule", {x});
  expect_error(ErrorKind::NotImplemented,
               "test_no_grad_rule: this op has no gradient. Detach its inputs, or leave it out of the loss.",
               [&] { backward(s, y); });
  backward(s, apply("exp", {x}));  // the session is still good
  EXPECT_TRUE(gx);
}

TEST_F(Tape, AnErrorInsideACallbackLeavesTheSessionUsable) {
  TensorPtr x = f64({1}, {3});
  bool angry = true;
  std::vector<double> told;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) {
    if (angry) throw Error(ErrorKind::Value, "no thanks");
    told.push_back(item(g));
  });
  expect_error(ErrorKind::Value, "no thanks", [&] { backward(s, apply("mul", {x, x})); });
  angry = false;
  backward(s, apply("mul", {x, x}));
  EXPECT_THAT(told, ElementsAre(6)) << "no half-summed gradient survives";
  EXPECT_TRUE(s.recording());
}

// ---- memory

TEST_F(Tape, DeadBranchesAreFreedAtOnce) {
  TensorPtr x = filled({1024}, 1);
  GradSession s;
  s.start();
  s.attach(*x, [](TensorPtr) {});
  size_t before = in_use();
  TensorPtr y = apply("exp", {apply("mul", {apply("sin", {x}), apply("cos", {x})})});
  EXPECT_GE(in_use(), before + 4096 * 3);
  y = nullptr;
  EXPECT_EQ(in_use(), before) << "nobody can ask for these gradients any more";
  for (int i = 0; i < 100; ++i) apply("exp", {x});
  EXPECT_EQ(in_use(), before);
}

TEST_F(Tape, KeepsOnlyWhatBackwardNeeds) {
  TensorPtr x = filled({1024}, 1), y = filled({1024}, 1), two = scalar(2);
  GradSession s;
  s.start();
  s.attach(*x, [](TensorPtr) {});
  auto held_by = [&](const std::function<TensorPtr()>& f) {
    size_t before = in_use();
    TensorPtr z = f();
    return (in_use() - before) / 4096;
  };
  EXPECT_EQ(held_by([&] { return apply("add", {apply("neg", {x}), y}); }), 1u) << "only the result";
  EXPECT_EQ(held_by([&] {
              return apply("relu", {apply("add", {x, y})});
            }),
            1u)
      << "relu keeps its output, not its input";
  for (const char* mode : {"sum", "mean"})
    EXPECT_EQ(held_by([&] {
                return apply("reduce", {apply("add", {x, y})}, make_attrs(ReduceAttrs{mode, {}, false}));
              }),
              0u)
        << mode;
  EXPECT_EQ(held_by([&] {
              return apply("reduce", {apply("add", {x, y})}, make_attrs(ReduceAttrs{"max", {}, false}));
            }),
            1u);
  EXPECT_EQ(held_by([&] { return apply("reshape", {apply("add", {x, y})}, make_attrs(ShapeAttrs{{32, 32}})); }), 1u);
}

TEST_F(Tape, BackwardGivesMemoryBackAsItWalks) {
  TensorPtr x = filled({4096}, 0.5);
  size_t before = in_use();
  {
    TensorPtr gx;
    GradSession s;
    s.start();
    s.attach(*x, [&](TensorPtr g) { gx = g; });
    TensorPtr y = x;
    for (int i = 0; i < 50; ++i) y = apply("sin", {y});
    size_t forward = in_use();
    Pool::of({}).reset_peak();
    backward(s, y);
    EXPECT_LT(Pool::of({}).stats().max_allocated, forward + 10 * 16384) << "saved values were kept until the end";
    EXPECT_LE(in_use(), before + 2 * 16384 + 64) << "y and the gradient";
  }
  EXPECT_EQ(in_use(), before);
}

TEST_F(Tape, StoppingForgetsEverything) {
  TensorPtr x = filled({1024}, 1);
  size_t before = in_use();
  {
    GradSession s;
    s.start();
    s.attach(*x, [](TensorPtr) {});
    TensorPtr y = apply("exp", {apply("sin", {x})});
    s.stop();
    TensorPtr z = apply("exp", {x});
    EXPECT_TRUE(z->links.empty()) << "links of a finished session are not followed";
    s.start();
    EXPECT_FALSE(s.is_attached(*x)) << "a new recording starts empty";
  }
  EXPECT_EQ(in_use(), before);
}

TEST_F(Tape, AChainOfAHundredThousandOpsIsFreedWithoutRecursion) {
  for (bool with_backward : {false, true}) {
    TensorPtr x = scalar(1, DType::F64), one = scalar(1e-9, DType::F64), gx;
    GradSession s;
    s.start();
    s.attach(*x, [&](TensorPtr g) { gx = g; });
    TensorPtr y = x;
    for (int i = 0; i < 100000; ++i) y = apply("add", {y, one});
    if (with_backward) {
      backward(s, y);
      EXPECT_EQ(item(gx), 1);
    }
    y = nullptr;
  }
}

TEST_F(Tape, LongChainsInNestedSessionsAndCustomRules) {
  TensorPtr x = scalar(1, DType::F64);
  GradSession outer, inner;
  outer.start();
  outer.attach(*x, [](TensorPtr) {});
  inner.start();
  inner.attach(*x, [](TensorPtr) {});
  TensorPtr y = x;
  for (int i = 0; i < 30000; ++i) y = apply("mul", {y, x});  // saves its inputs, with links of the outer session
  y = nullptr;
  TensorPtr z = x;
  for (int i = 0; i < 30000; ++i) {
    TensorPtr next = detach(*z);
    Tensor *in[] = {z.get()}, *out[] = {next.get()};
    tape_record_custom([z](const std::vector<TensorPtr>& g) { return g; }, in, out);  // the rule holds its input
    z = next;
  }
  z = nullptr;
}

// ---- custom rules

TEST_F(Tape, CustomRule) {
  TensorPtr a = f64({2}, {1, 2}), b = f64({2}, {3, 4}), ga, gb;
  GradSession s;
  s.start();
  s.attach(*a, [&](TensorPtr g) { ga = g; });
  s.attach(*b, [&](TensorPtr g) { gb = g; });
  Tensor* in[] = {a.get(), b.get()};
  EXPECT_EQ(tracking_session(in), &s);
  TensorPtr y = f64({2}, {10, 20}), unused = f64({2}, {0, 0});
  Tensor* out[] = {y.get(), unused.get()};
  tape_record_custom(
      [](const std::vector<TensorPtr>& g) {
        EXPECT_EQ(g.size(), 2u);
        EXPECT_TRUE(g[0]);
        EXPECT_FALSE(g[1]) << "an output nobody used has no gradient";
        return std::vector<TensorPtr>{apply("mul", {g[0], scalar(5, DType::F64)}), nullptr};
      },
      in, out);
  backward(s, apply("mul", {y, y}));
  EXPECT_THAT(values(ga), ElementsAre(100, 200));
  EXPECT_FALSE(gb) << "None stops that path";
  TensorPtr plain = f64({1}, {1});
  Tensor* none[] = {plain.get()};
  EXPECT_EQ(tracking_session(none), nullptr);
}

// ---- parts that are run again

TEST_F(Tape, AnUnrecordedPartIsWalkedWhereItStood) {
  // The gradient of x has terms 1e16 and 1: adding them in another order gives other bits.
  auto gradient = [](bool unrecorded) {
    TensorPtr x = scalar(1, DType::F64), gx;
    GradSession s;
    s.start();
    s.attach(*x, [&](TensorPtr g) { gx = g; });
    auto times = [](const TensorPtr& a, double b) { return apply("mul", {a, scalar(b, DType::F64)}); };
    auto part = [&](const TensorPtr& x) { return apply("add", {times(x, 1), times(x, 1e16)}); };
    TensorPtr before = times(x, 1), y;
    if (unrecorded) {
      Unrecorded here;
      y = part(detach(*x));
      here.end();
      Tensor *in[] = {x.get()}, *out[] = {y.get()};
      here.record([&](auto&) { return std::vector<TensorPtr>{part(x)}; }, in, out);
    } else {
      y = part(x);
    }
    TensorPtr after = times(x, -1e16);
    backward(s, apply("add", {apply("add", {before, y}), after}));
    return item(gx);
  };
  EXPECT_EQ(gradient(false), 2);  // ((-1e16 + 1e16) + 1) + 1
  EXPECT_EQ(gradient(true), 2);
}

TEST_F(Tape, AnUnrecordedPartKeepsNothingAndRefusesTensorsFromOutside) {
  TensorPtr x = filled({4}, 2), y, outside;
  GradSession s;
  s.start();
  s.attach(*x, [](TensorPtr) {});
  outside = apply("exp", {x});
  Unrecorded here;
  EXPECT_FALSE(any_recording());
  TensorPtr squared = apply("mul", {x, x});
  EXPECT_FALSE(s.is_attached(*squared));
  expect_error(ErrorKind::Env, "neither an argument nor attached", [&] { apply("mul", {x, outside}); });
  here.end();
  EXPECT_TRUE(any_recording());
  Tensor* out[] = {squared.get()};
  here.record([&](auto&) { return std::vector<TensorPtr>{apply("mul", {x, x})}; }, {}, out);
  EXPECT_TRUE(s.is_attached(*squared)) << "x was used, though it was no argument";
}

/// Notes op and line of everything dispatched, and lets it run.
class NoteTracer final : public Tracer {
 public:
  NoteTracer() { set_active_tracer(this); }
  ~NoteTracer() override { set_active_tracer(nullptr); }
  bool on_op(const OpDef& op, const Attrs&, std::span<Tensor* const>, std::span<const ValuePtr>, LocId loc) override {
    notes.push_back(op.name + ":" + std::to_string(loc));
    return false;
  }
  void on_assign(Tensor&, const Tensor&) override {}
  bool materialize(Value&) override { return false; }
  uint32_t epoch() const override { return 0; }
  void on_read(Tensor&) override {}
  void exclude_begin() override {}
  void exclude_end() override {}
  bool any_size(const Tensor&) const override { return false; }
  TensorPtr sizes_of(Tensor&) override { return nullptr; }
  bool on_size(Tensor&) override { return false; }
  std::vector<std::string> notes;
};

TEST_F(Tape, BackwardOpsCarryTheForwardLine) {
  fake_locations();
  NoteTracer tracer;
  TensorPtr x = filled({2}, 1);
  GradSession s;
  s.start();
  s.attach(*x, [](TensorPtr) {});
  g_line = 12;
  TensorPtr m = apply("sin", {x});
  g_line = 13;
  TensorPtr z = apply("exp", {m});
  g_line = 50;
  backward(s, z);
  apply("neg", {x});
  // Negative: the backward of that line.
  EXPECT_THAT(tracer.notes, ElementsAre("sin:12", "exp:13", "mul:-13", "cos:-12", "mul:-12", "neg:50"));
  EXPECT_EQ(backward_location(), 0);
}

}  // namespace
}  // namespace mge
