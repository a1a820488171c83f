// vjp rules of the elementwise ops. Rules emit ops, so each can be differentiated again. Where the derivative can be
// written from the output, only the output is saved: it is usually alive anyway. A table: one rule, one line.
// clang-format off
#include "op/emitter.h"

namespace mge {
namespace {

constexpr Saves kInput{.inputs = 1}, kBoth{.inputs = 3}, kOutput{.outputs = 1};

Val zero_like(const Val& like) { return scalar_like(like, 0); }
Val where_or_zero(const Val& cond, const Val& g) { return select(cond, g, zero_like(g)); }
void set_unbroadcast(VjpCtx& c, size_t i, const Val& g) { c.set(i, unbroadcast(g, c.in_shape(i))); }

Val conjugate(const Val& x) {
  return x.dtype() == DType::C64 ? binary("complex", unary("real", x), -unary("imag", x)) : x;
}

// Piecewise constant: the derivative is 0 wherever it exists.
void vjp_zero(VjpCtx& c) {
  for (size_t i = 0; i < c.n_in(); ++i)
    if (c.wants(i)) c.set(i, broadcast_to(zero_like(c.gy()), c.in_shape(i)));
}

void register_unary(OpRegistry& r) {
  r.grad("exp", [](VjpCtx& c) { c.set(0, c.gy() * c.out()); }, kOutput);
  r.grad("expm1", [](VjpCtx& c) { c.set(0, c.gy() * (c.out() + 1)); }, kOutput);
  r.grad("log", [](VjpCtx& c) { c.set(0, c.gy() / c.in(0)); }, kInput);
  r.grad("log1p", [](VjpCtx& c) { c.set(0, c.gy() / (c.in(0) + 1)); }, kInput);
  r.grad("sqrt", [](VjpCtx& c) { c.set(0, c.gy() * 0.5 / c.out()); }, kOutput);
  r.grad("rsqrt", [](VjpCtx& c) { c.set(0, c.gy() * -0.5 * c.out() * unary("square", c.out())); }, kOutput);
  r.grad("sin", [](VjpCtx& c) { c.set(0, c.gy() * unary("cos", c.in(0))); }, kInput);
  r.grad("cos", [](VjpCtx& c) { c.set(0, -(c.gy() * unary("sin", c.in(0)))); }, kInput);
  r.grad("tan", [](VjpCtx& c) { c.set(0, c.gy() * (unary("square", c.out()) + 1)); }, kOutput);
  r.grad("asin", [](VjpCtx& c) { c.set(0, c.gy() / unary("sqrt", 1 - unary("square", c.in(0)))); }, kInput);
  r.grad("acos", [](VjpCtx& c) { c.set(0, -(c.gy() / unary("sqrt", 1 - unary("square", c.in(0))))); }, kInput);
  r.grad("atan", [](VjpCtx& c) { c.set(0, c.gy() / (unary("square", c.in(0)) + 1)); }, kInput);
  r.grad("sinh", [](VjpCtx& c) { c.set(0, c.gy() * unary("cosh", c.in(0))); }, kInput);
  r.grad("cosh", [](VjpCtx& c) { c.set(0, c.gy() * unary("sinh", c.in(0))); }, kInput);
  r.grad("tanh", [](VjpCtx& c) { c.set(0, binary("tanh_grad", c.out(), c.gy())); }, kOutput);
  r.grad("asinh", [](VjpCtx& c) { c.set(0, c.gy() / unary("sqrt", unary("square", c.in(0)) + 1)); }, kInput);
  r.grad("acosh", [](VjpCtx& c) { c.set(0, c.gy() / unary("sqrt", unary("square", c.in(0)) - 1)); }, kInput);
  r.grad("atanh", [](VjpCtx& c) { c.set(0, c.gy() / (1 - unary("square", c.in(0)))); }, kInput);
  // The density 2/sqrt(pi) exp(-x^2), and its reciprocal at the result of an inverse.
  static constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
  r.grad("erf", [](VjpCtx& c) {
    c.set(0, c.gy() * (unary("exp", -unary("square", c.in(0))) * kTwoOverSqrtPi));
  }, kInput);
  r.grad("erfc", [](VjpCtx& c) {
    c.set(0, c.gy() * (unary("exp", -unary("square", c.in(0))) * -kTwoOverSqrtPi));
  }, kInput);
  r.grad("erfinv", [](VjpCtx& c) {
    c.set(0, c.gy() * (unary("exp", unary("square", c.out())) / kTwoOverSqrtPi));
  }, kOutput);
  r.grad("erfcinv", [](VjpCtx& c) {
    c.set(0, c.gy() * (unary("exp", unary("square", c.out())) / -kTwoOverSqrtPi));
  }, kOutput);
  r.grad("sigmoid", [](VjpCtx& c) { c.set(0, binary("sigmoid_grad", c.out(), c.gy())); }, kOutput);
  r.grad("gelu", [](VjpCtx& c) { c.set(0, binary("gelu_grad", c.in(0), c.gy())); }, kInput);
  r.grad("silu", [](VjpCtx& c) { c.set(0, binary("silu_grad", c.in(0), c.gy())); }, kInput);
  r.grad("softplus", [](VjpCtx& c) { c.set(0, c.gy() * unary("sigmoid", c.in(0))); }, kInput);
  r.grad("logsigmoid", [](VjpCtx& c) { c.set(0, c.gy() * unary("sigmoid", -c.in(0))); }, kInput);
  r.grad("hswish", [](VjpCtx& c) { c.set(0, binary("hswish_grad", c.in(0), c.gy())); }, kInput);
  r.grad("hsigmoid", [](VjpCtx& c) { c.set(0, binary("hsigmoid_grad", c.out(), c.gy())); }, kOutput);
  r.grad("abs", [](VjpCtx& c) { c.set(0, binary("abs_grad", c.in(0), c.gy())); }, kInput);
  r.grad("neg", [](VjpCtx& c) { c.set(0, -c.gy()); });
  r.grad("square", [](VjpCtx& c) { c.set(0, c.gy() * (c.in(0) * 2)); }, kInput);
  r.grad("relu", [](VjpCtx& c) { c.set(0, binary("relu_grad", c.out(), c.gy())); }, kOutput);
  r.grad("relu6", [](VjpCtx& c) { c.set(0, binary("relu6_grad", c.out(), c.gy())); }, kOutput);
  for (const char* op : {"sign", "floor", "ceil", "round"}) r.grad(op, vjp_zero);
}

void register_binary(OpRegistry& r) {
  r.grad("add", [](VjpCtx& c) {
    for (size_t i = 0; i < 2; ++i)
      if (c.wants(i)) set_unbroadcast(c, i, c.gy());
  });
  r.grad("sub", [](VjpCtx& c) {
    if (c.wants(0)) set_unbroadcast(c, 0, c.gy());
    if (c.wants(1)) c.set(1, -unbroadcast(c.gy(), c.in_shape(1)));
  });
  r.grad("mul", [](VjpCtx& c) {
    for (size_t i = 0; i < 2; ++i)
      if (c.wants(i)) set_unbroadcast(c, i, c.gy() * conjugate(c.in(1 - i)));
  }, {.inputs = 3, .read_for = Saves::ReadFor::Other});
  r.grad("div", [](VjpCtx& c) {
    Val g = c.gy() / c.in(1);
    if (c.wants(0)) set_unbroadcast(c, 0, g);
    if (c.wants(1)) set_unbroadcast(c, 1, -(g * c.out()));
  }, {.inputs = 2, .outputs = 1, .read_for = Saves::ReadFor::Second});
  r.grad("floor_div", vjp_zero);
  r.grad("mod", [](VjpCtx& c) {  // x - trunc(x/y) * y
    if (c.wants(0)) set_unbroadcast(c, 0, c.gy());
    if (c.wants(1)) set_unbroadcast(c, 1, c.gy() * ((c.out() - c.in(0)) / c.in(1)));
  }, {.inputs = 3, .outputs = 1});
  // Of equal operands the first takes the whole gradient, so that maximum(x, x) passes it on exactly once.
  r.grad("maximum", [](VjpCtx& c) {
    if (c.wants(0)) set_unbroadcast(c, 0, where_or_zero(binary("le", c.in(1), c.in(0)), c.gy()));
    if (c.wants(1)) set_unbroadcast(c, 1, where_or_zero(binary("lt", c.in(0), c.in(1)), c.gy()));
  }, kBoth);
  r.grad("minimum", [](VjpCtx& c) {
    if (c.wants(0)) set_unbroadcast(c, 0, where_or_zero(binary("le", c.in(0), c.in(1)), c.gy()));
    if (c.wants(1)) set_unbroadcast(c, 1, where_or_zero(binary("lt", c.in(1), c.in(0)), c.gy()));
  }, kBoth);
  r.grad("prelu", [](VjpCtx& c) {  // 0 is as above it
    const Val above = binary("le", zero_like(c.in(0)), c.in(0));
    if (c.wants(0)) set_unbroadcast(c, 0, select(above, c.gy(), c.gy() * c.in(1)));
    if (c.wants(1)) set_unbroadcast(c, 1, select(above, zero_like(c.gy()), c.gy() * c.in(0)));
  }, kBoth);
  r.grad("pow", [](VjpCtx& c) {
    const Val &x = c.in(0), &y = c.in(1);
    if (c.wants(0)) set_unbroadcast(c, 0, c.gy() * (y * binary("pow", x, y - 1)));
    if (c.wants(1)) {  // log only of positive bases: no NaN from 0 * log(0)
      Val positive = binary("lt", zero_like(x), x);
      Val base = select(positive, x, scalar_like(x, 1));
      set_unbroadcast(c, 1, c.gy() * (c.out() * unary("log", base)));
    }
  }, {.inputs = 3, .outputs = 1, .read_for = Saves::ReadFor::Second});
  r.grad("atan2", [](VjpCtx& c) {
    const Val &y = c.in(0), &x = c.in(1);
    Val g = c.gy() / (unary("square", x) + unary("square", y));
    if (c.wants(0)) set_unbroadcast(c, 0, g * x);
    if (c.wants(1)) set_unbroadcast(c, 1, -(g * y));
  }, kBoth);
  r.grad("logaddexp", [](VjpCtx& c) {
    // exp(x - out) would be 1 for both where log 2 is lost beside large x and y.
    for (size_t i = 0; i < 2; ++i)
      if (c.wants(i)) set_unbroadcast(c, i, c.gy() * unary("sigmoid", c.in(i) - c.in(1 - i)));
  }, kBoth);
  r.grad("where", [](VjpCtx& c) {
    if (c.wants(1)) set_unbroadcast(c, 1, where_or_zero(c.in(0), c.gy()));
    if (c.wants(2)) set_unbroadcast(c, 2, select(c.in(0), zero_like(c.gy()), c.gy()));
  }, kInput);
  r.grad("typecvt", [](VjpCtx& c) {
    if (is_float(c.in_metas[0].dtype)) c.set(0, cast(c.gy(), c.in_metas[0].dtype));
  });
}

// op(y, g) with op linear in g: its vjp for g is the same op on the incoming gradient.
void set_linear(VjpCtx& c) {
  if (c.wants(1)) c.set(1, binary(c.op->name.c_str(), c.in(0), c.gy()));
}
Val both_gradients(VjpCtx& c) { return c.gy() * c.in(1); }

void register_grad_ops(OpRegistry& r) {
  for (const char* op : {"relu_grad", "abs_grad", "relu6_grad", "hsigmoid_grad"}) r.grad(op, set_linear, kInput);
  r.grad("sigmoid_grad", [](VjpCtx& c) {
    if (c.wants(0)) c.set(0, both_gradients(c) * (1 - c.in(0) * 2));
    set_linear(c);
  }, kBoth);
  r.grad("tanh_grad", [](VjpCtx& c) {
    if (c.wants(0)) c.set(0, both_gradients(c) * (c.in(0) * -2));
    set_linear(c);
  }, kBoth);
  r.grad("hswish_grad", [](VjpCtx& c) {
    const Val& x = c.in(0);
    if (c.wants(0)) c.set(0, where_or_zero(binary("le", unary("abs", x), scalar_like(x, 3)), both_gradients(c) / 3));
    set_linear(c);
  }, kBoth);
  r.grad("silu_grad", [](VjpCtx& c) {
    const Val& x = c.in(0);
    if (c.wants(0)) {
      Val s = unary("sigmoid", x);
      c.set(0, both_gradients(c) * (s * (1 - s) * (x * (1 - s * 2) + 2)));
    }
    set_linear(c);
  }, kBoth);
  r.grad("gelu_grad", [](VjpCtx& c) {
    constexpr double kInvSqrt2Pi = 0.39894228040143267794;
    if (c.wants(0)) {
      Val square = unary("square", c.in(0));
      c.set(0, both_gradients(c) * (unary("exp", square * -0.5) * kInvSqrt2Pi * (2 - square)));
    }
    set_linear(c);
  }, kBoth);
}

}  // namespace

void register_elementwise_grads(OpRegistry& r) {
  register_unary(r);
  register_binary(r);
  register_grad_ops(r);
}

}  // namespace mge
