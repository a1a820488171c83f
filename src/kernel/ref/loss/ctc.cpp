// Sequences are independent and go to threads. States are blank, l1, blank, l2, .. blank: 2 * length + 1 of them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/loss/ctc.h"

namespace mge {
namespace {

constexpr double kNever = -INFINITY;

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

struct Sequence {
  int64_t steps, states;
  std::vector<int32_t> symbol;            // of each state
  std::vector<double> logp, alpha, beta;  // [steps, states]
  double total = 0;                       // log of the probability

  size_t at(int64_t t, int64_t s) const { return static_cast<size_t>(t * states + s); }
  bool skips(int64_t s) const {  // may come from two states before
    return s >= 2 && s % 2 && symbol[static_cast<size_t>(s)] != symbol[static_cast<size_t>(s - 2)];
  }

  /// `never`: the logarithm of what cannot be. It is -inf; above, an impossible sequence has a probability, too.
  void forward(double never = kNever) {
    alpha.assign(logp.size(), kNever);
    for (double& p : logp) p = std::max(p, never);
    for (int64_t s = 0; s < states; ++s) alpha[at(0, s)] = s < 2 ? logp[at(0, s)] : never;
    for (int64_t t = 1; t < steps; ++t)
      for (int64_t s = 0; s < states; ++s) {
        double a = alpha[at(t - 1, s)];
        if (s >= 1) a = log_add(a, alpha[at(t - 1, s - 1)]);
        if (skips(s)) a = log_add(a, alpha[at(t - 1, s - 2)]);
        alpha[at(t, s)] = a + logp[at(t, s)];
      }
    total = alpha[at(steps - 1, states - 1)];
    if (states >= 2) total = log_add(total, alpha[at(steps - 1, states - 2)]);
  }
  // beta leaves out the step itself, so alpha + beta is the log probability of all paths through a state.
  void backward() {
    beta.assign(logp.size(), kNever);
    for (int64_t s = std::max<int64_t>(0, states - 2); s < states; ++s) beta[at(steps - 1, s)] = 0;
    for (int64_t t = steps - 2; t >= 0; --t)
      for (int64_t s = 0; s < states; ++s) {
        auto via = [&](int64_t to) { return beta[at(t + 1, to)] + logp[at(t + 1, to)]; };
        double b = via(s);
        if (s + 1 < states) b = log_add(b, via(s + 1));
        if (s + 2 < states && skips(s + 2)) b = log_add(b, via(s + 2));
        beta[at(t, s)] = b;
      }
  }
};

// Checks lengths and labels, which only the kernel sees, and returns where each sequence's labels start.
std::vector<int64_t> label_starts(const KernelArgs& a) {
  const Shape &p = a.in[0].shape, &l = a.in[2].shape;
  const auto *steps = a.in[1].data<int32_t>(), *label = a.in[2].data<int32_t>(), *count = a.in[3].data<int32_t>();
  std::vector<int64_t> start;
  int64_t next = 0, room = l.rank == 2 ? l[1] : l[0];
  for (int64_t n = 0; n < p[1]; ++n) {
    MGE_CHECK(steps[n] >= 1 && steps[n] <= p[0], Assertion,
              "{}: pred_lengths must lie in 1..{}; got {} for sequence {}.", a.op->name, p[0], steps[n], n);
    MGE_CHECK(count[n] >= 0 && count[n] <= (l.rank == 2 ? room : room - next), Assertion,
              "{}: label_lengths do not fit label {}; got {} for sequence {}.", a.op->name, l.str(), count[n], n);
    start.push_back(l.rank == 2 ? n * room : next);
    next += count[n];
    for (int64_t i = 0; i < count[n]; ++i) {
      int32_t v = label[start.back() + i];
      MGE_CHECK(v >= 0 && v < p[2], Assertion, "{}: labels must be classes 0..{}; got {} in sequence {}.", a.op->name,
                p[2] - 1, v, n);
    }
  }
  return start;
}

template <class T>
Sequence make_sequence(const KernelArgs& a, int64_t n, int64_t start) {
  const Shape& p = a.in[0].shape;
  Sequence q;
  q.steps = a.in[1].data<int32_t>()[n];
  q.states = 2 * int64_t{a.in[3].data<int32_t>()[n]} + 1;
  for (int64_t s = 0; s < q.states; ++s)
    q.symbol.push_back(s % 2 ? a.in[2].data<int32_t>()[start + s / 2] : static_cast<int32_t>(a.as<CtcAttrs>().blank));
  for (int64_t t = 0; t < q.steps; ++t)
    for (int32_t c : q.symbol)
      q.logp.push_back(std::log(static_cast<double>(a.in[0].data<T>()[(t * p[1] + n) * p[2] + c])));
  q.forward();
  return q;
}

struct Ctc {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    auto start = label_starts(a);
    parallel_for(a.in[0].shape[1], 1, [&](int64_t n, int64_t end) {
      for (; n < end; ++n) {
        Sequence q = make_sequence<T>(a, n, start[static_cast<size_t>(n)]);
        if (q.total == kNever) q.forward(kCtcFloor);
        a.out[0].data<T>()[n] = static_cast<T>(-q.total);
      }
    });
  }
};

struct CtcBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    auto start = label_starts(a);
    const Shape& p = a.in[0].shape;
    T* g = a.out[0].data<T>();
    std::fill_n(g, a.out[0].numel(), T(0));
    parallel_for(p[1], 1, [&](int64_t n, int64_t end) {
      for (; n < end; ++n) {
        Sequence q = make_sequence<T>(a, n, start[static_cast<size_t>(n)]);
        q.backward();
        double gy = static_cast<double>(a.in[4].data<T>()[n]);
        std::vector<double> sum(static_cast<size_t>(p[2]));
        for (int64_t t = 0; t < q.steps; ++t) {
          std::fill(sum.begin(), sum.end(), 0.0);
          // d total / d pred[t,c] = sum over states with symbol c of exp(alpha + beta - logp - total)
          for (int64_t s = 0; s < q.states; ++s) {
            double path = q.alpha[q.at(t, s)] + q.beta[q.at(t, s)];
            if (path != kNever)
              sum[static_cast<size_t>(q.symbol[static_cast<size_t>(s)])] +=
                  std::exp(path - q.logp[q.at(t, s)] - q.total);
          }
          for (int64_t c = 0; c < p[2]; ++c)
            if (sum[static_cast<size_t>(c)] != 0)
              g[(t * p[1] + n) * p[2] + c] = static_cast<T>(-gy * sum[static_cast<size_t>(c)]);
        }
      }
    });
  }
};

}  // namespace

void register_ref_ctc(KernelRegistry& r) {
  ref::add_floating<Ctc>(r, "ctc_loss", "ref_ctc_loss");
  ref::add_floating<CtcBwd>(r, "ctc_loss_bwd", "ref_ctc_loss_bwd");
}

}  // namespace mge
