// Traced functions as the Python layer drives them, and a training step to trace.
#pragma once
#include <random>

#include "eager/eager_test_util.h"
#include "eager/trace.h"

namespace mge {

using Tensors = std::vector<TensorPtr>;
using Body = std::function<Tensors(const Tensors&)>;

inline std::vector<Tensor*> raw(const Tensors& ts) {
  std::vector<Tensor*> out;
  for (auto& t : ts) out.push_back(t.get());
  return out;
}

/// A traced function as the Python layer drives it.
class Traced {
 public:
  explicit Traced(Body body, int opt_level = 2, bool replay = false)
      : body_(std::move(body)), r_(make_ref<Recording>(TraceOptions{opt_level, false, replay})) {}
  Tensors record(const Tensors& args) {
    auto in = raw(args);
    r_->record_begin(in);
    try {
      Tensors out = body_(args);
      r_->record_end(raw(out));
      return out;
    } catch (...) {
      r_->record_abort();
      throw;
    }
  }
  Tensors match(const Tensors& args, const Body& other = nullptr) {
    auto in = raw(args);
    r_->match_begin(in);
    Tensors out;
    try {
      out = other ? other(args) : body_(args);
    } catch (...) {
      r_->match_abort();
      throw;
    }
    r_->match_end();
    return out;
  }
  Tensors replay(const Tensors& args) { return r_->replay(raw(args)); }
  Recording& operator*() { return *r_; }
  Recording* operator->() { return r_.get(); }

 private:
  Body body_;
  RefPtr<Recording> r_;
};

inline std::string trace_error(const std::function<void()>& f) {
  Error e = caught(f);
  EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::Trace)) << e.text();
  return e.text();
}

class TraceTest : public EagerTest, public testing::WithParamInterface<ExecPolicy> {
 protected:
  void SetUp() override {
    EagerTest::SetUp();
    set_exec_policy(GetParam());
  }
};
inline Val val(const TensorPtr& t) { return EagerEmitter::get().val(t); }
inline TensorPtr ptr(const Val& v) { return TensorPtr(EagerEmitter::tensor(v)); }

/// Two layers, a squared error, gradients by the tape, plain SGD: a training step with state.
struct Model {
  TensorPtr w1 = random({5, 4}, 1), b1 = random({5}, 2), w2 = random({2, 5}, 3), lr = scalar(0.1);

  static TensorPtr random(const Shape& s, uint32_t seed) {
    std::mt19937 rng(seed);
    std::vector<double> v(static_cast<size_t>(s.numel()));
    for (auto& x : v) x = static_cast<double>(static_cast<int32_t>(rng())) * 0x1p-31;
    return tensor(s, v);
  }
  Tensors step(const Tensors& args) {
    Tensors params{w1, b1, w2}, grads(3);
    GradSession s;
    s.start();
    for (size_t i = 0; i < 3; ++i) s.attach(*params[i], [&grads, i](TensorPtr g) { grads[i] = g; });
    Val h = unary("tanh", matmul(val(args[0]), val(w1), false, true) + val(b1));
    Val d = matmul(h, val(w2), false, true) - val(args[1]);
    TensorPtr loss = ptr(reduce(d * d, "mean", {}, false)), one = scalar(1);
    Tensor *ys[] = {loss.get()}, *dys[] = {one.get()};
    s.backward(ys, dys);
    s.stop();
    for (size_t i = 0; i < 3; ++i) assign(*params[i], *ptr(val(params[i]) - val(grads[i]) * val(lr)));
    return {loss};
  }
  std::string bytes() { return bytes_of(*w1) + bytes_of(*b1) + bytes_of(*w2); }
};
inline Tensors batch(uint32_t seed, int64_t n = 3) {
  return {Model::random({n, 4}, seed), Model::random({n, 2}, seed + 1)};
}

inline auto policy_name = [](auto& info) { return info.param == ExecPolicy::Inline ? "inline" : "async"; };

}  // namespace mge
