#include <cmath>
#include <vector>

#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/recurrence/recurrence.h"

namespace mge {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Recurrence {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const RecurrenceGeom g = recurrence_geom(a.as<RecurrenceAttrs>(), a.in[0].shape, a.in[1].shape);
    const int64_t H = g.hidden;
    const T *gates = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* hs = a.out[0].data<T>();
    for (int64_t k = 0; k < g.steps; ++k)
      for (int64_t n = 0; n < g.batch; ++n) {
        const int64_t row = g.at(k) * g.batch + n, last = g.before(k) * g.batch + n;
        const T* h = k == 0 ? a.in[2].data<T>() + n * H : hs + last * H;
        auto pre = [&](int64_t j) {
          double sum = 0;
          for (int64_t i = 0; i < H; ++i) sum += static_cast<double>(h[i]) * static_cast<double>(w[j * H + i]);
          return static_cast<double>(gates[row * g.gates + j]) + sum;
        };
        for (int64_t j = 0; j < H; ++j) {
          if (g.kind != CellKind::Lstm) {
            const double v = pre(j);
            hs[row * H + j] = static_cast<T>(g.kind == CellKind::Tanh ? std::tanh(v) : v > 0 || v != v ? v : 0);
            continue;
          }
          const double i = sigmoid(pre(j)), f = sigmoid(pre(H + j)), c = std::tanh(pre(2 * H + j)),
                       o = sigmoid(pre(3 * H + j));
          T *cs = a.out[1].data<T>(), *acts = a.out[2].data<T>() + row * g.gates;
          const T before = k == 0 ? a.in[3].data<T>()[n * H + j] : cs[last * H + j];
          const double now = f * static_cast<double>(before) + i * c;
          acts[j] = static_cast<T>(i), acts[H + j] = static_cast<T>(f), acts[2 * H + j] = static_cast<T>(c),
          acts[3 * H + j] = static_cast<T>(o);
          cs[row * H + j] = static_cast<T>(now);
          hs[row * H + j] = static_cast<T>(o * std::tanh(now));
        }
      }
  }
};

struct RecurrenceBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const Shape& s = a.in[kHs].shape;
    const RecurrenceGeom g =
        recurrence_geom(a.as<RecurrenceAttrs>(), Shape{s[0], s[1], a.in[kW].shape[0]}, a.in[kW].shape);
    const int64_t H = g.hidden;
    const bool lstm = g.kind == CellKind::Lstm;
    auto read = [&](size_t i, int64_t at) { return static_cast<double>(a.in[i].data<T>()[at]); };
    T* pre = a.out[0].data<T>();
    std::vector<double> dh(static_cast<size_t>(g.batch * H)), dc(dh.size());
    for (int64_t k = g.steps - 1; k >= 0; --k) {
      for (int64_t n = 0; n < g.batch; ++n)
        for (int64_t j = 0; j < H; ++j) {
          const int64_t row = g.at(k) * g.batch + n, at = row * H + j;
          const size_t state = static_cast<size_t>(n * H + j);
          const double gh = read(kGradHs, at) + dh[state], h = read(kHs, at);
          T* to = pre + row * g.gates + j;
          if (!lstm) {
            *to = static_cast<T>(g.kind == CellKind::Tanh ? gh * (1 - h * h) : h > 0 ? gh : 0);
            continue;
          }
          auto act = [&](int64_t i) { return read(kActs, row * g.gates + i * H + j); };
          auto extra = [&](int64_t i) {
            return a.in.size() > kGradActs ? read(kGradActs, row * g.gates + i * H + j) : 0;
          };
          const double i = act(0), f = act(1), c = act(2), o = act(3), tc = std::tanh(read(kCs, at));
          const double before = k == 0 ? read(kC0, n * H + j) : read(kCs, (g.before(k) * g.batch + n) * H + j);
          const double gc = read(kGradCs, at) + dc[state] + gh * o * (1 - tc * tc);
          to[0] = static_cast<T>((gc * c + extra(0)) * i * (1 - i));
          to[H] = static_cast<T>((gc * before + extra(1)) * f * (1 - f));
          to[2 * H] = static_cast<T>((gc * i + extra(2)) * (1 - c * c));
          to[3 * H] = static_cast<T>((gh * tc + extra(3)) * o * (1 - o));
          dc[state] = gc * f;
        }
      for (int64_t n = 0; n < g.batch; ++n)
        for (int64_t j = 0; j < H; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < g.gates; ++i)
            sum += static_cast<double>(pre[(g.at(k) * g.batch + n) * g.gates + i]) * read(kW, i * H + j);
          dh[static_cast<size_t>(n * H + j)] = sum;
        }
    }
    for (size_t i = 0; i < dh.size(); ++i) a.out[1].data<T>()[i] = static_cast<T>(dh[i]);
    if (lstm)
      for (size_t i = 0; i < dc.size(); ++i) a.out[2].data<T>()[i] = static_cast<T>(dc[i]);
  }
};

}  // namespace

void register_ref_recurrence(KernelRegistry& r) {
  ref::add_floating<Recurrence>(r, "recurrence", "ref_recurrence");
  ref::add_floating<RecurrenceBwd>(r, "recurrence_bwd", "ref_recurrence_bwd");
}

}  // namespace mge
