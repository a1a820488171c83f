// Optimizer steps, rounded as those of the CPU (kernel/ref/optim): C is float for 16-bit parameters. H is the dtype of
// `hyper`. Numbers that are tensors are read on the device, so that a captured step sees changed ones.
#pragma once
typedef Compute<T> C;
struct Args {
  i64 n;
  const T* in[4];  // w, g and the state in the op's order
  T* out[4];
  const T* old[4];  // what each result replaces
  i64 results;
  const L* lr;
  const S* t;
  const H* hyper;
  const Flag* skip;
  double number[4];  // where there is no `hyper`
  i64 flag;          // nesterov, decoupled, or bias correction
};
struct Step {
  double number[4], lr, t;
  __device__ explicit Step(const Args& a) : lr(a.lr ? load_as<double>(*a.lr) : 0), t(a.t ? load_as<double>(*a.t) : 0) {
    for (int k = 0; k < 4; ++k) number[k] = a.hyper && k < kNumbers ? load_as<double>(a.hyper[k]) : a.number[k];
  }
};
template <class F>
__device__ inline void each(const Args& a, F f) {
  const bool skip = a.skip && load(*a.skip);
  for (i64 i = thread_number(); i < a.n; i += thread_count()) {
    if (!skip) {
      f(i);
      continue;
    }
    for (i64 o = 0; o < a.results; ++o) a.out[o][i] = a.old[o][i];
  }
}
#define MGE_READ(name, k) const C name = load(a.in[k][i])

extern "C" __global__ void mge_sgd(const __grid_constant__ Args a) {
  const Step s(a);
  const C wd = static_cast<C>(s.number[0]), lr = static_cast<C>(s.lr);
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    const C d = wd != 0 ? g + wd * w : g;
    a.out[0][i] = cast<T>(w - lr * d);
  });
}
extern "C" __global__ void mge_sgd_momentum(const __grid_constant__ Args a) {
  const Step s(a);
  const C mu = static_cast<C>(s.number[0]), wd = static_cast<C>(s.number[1]), lr = static_cast<C>(s.lr);
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    MGE_READ(m, 2);
    const C d = wd != 0 ? g + wd * w : g, v = mu * m + d;
    a.out[0][i] = cast<T>(w - lr * (a.flag ? d + mu * v : v));
    a.out[1][i] = cast<T>(v);
  });
}
extern "C" __global__ void mge_adam(const __grid_constant__ Args a) {
  const Step s(a);
  const C lr = static_cast<C>(s.lr), b1 = static_cast<C>(s.number[0]), one_b1 = static_cast<C>(1 - s.number[0]);
  const C b2 = static_cast<C>(s.number[1]), one_b2 = static_cast<C>(1 - s.number[1]), eps = static_cast<C>(s.number[2]);
  const C wd = static_cast<C>(s.number[3]), scale1 = static_cast<C>(1 / (1 - pow(s.number[0], s.t)));
  const C scale2 = static_cast<C>(1 / (1 - pow(s.number[1], s.t)));
  const bool l2 = wd != 0 && !a.flag, decay = wd != 0 && a.flag;
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    MGE_READ(m, 2);
    MGE_READ(v, 3);
    const C d = l2 ? g + wd * w : g, mi = b1 * m + one_b1 * d, vi = b2 * v + one_b2 * (d * d);
    C delta = (mi * scale1) / (sqrt(vi * scale2) + eps);
    if (decay) delta = delta + wd * w;
    a.out[0][i] = cast<T>(w - lr * delta);
    a.out[1][i] = cast<T>(mi);
    a.out[2][i] = cast<T>(vi);
  });
}
extern "C" __global__ void mge_adagrad(const __grid_constant__ Args a) {
  const Step s(a);
  const C rate = static_cast<C>(s.lr / ((s.t - 1) * s.number[0] + 1)), eps = static_cast<C>(s.number[1]);
  const C wd = static_cast<C>(s.number[2]);
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    MGE_READ(q, 2);
    const C d = wd != 0 ? g + wd * w : g, si = q + d * d;
    a.out[0][i] = cast<T>(w - rate * d / sqrt(si + eps));
    a.out[1][i] = cast<T>(si);
  });
}
extern "C" __global__ void mge_adadelta(const __grid_constant__ Args a) {
  const Step s(a);
  const C lr = static_cast<C>(s.lr), rho = static_cast<C>(s.number[0]), one_rho = static_cast<C>(1 - s.number[0]);
  const C eps = static_cast<C>(s.number[1]), wd = static_cast<C>(s.number[2]);
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    MGE_READ(q, 2);
    MGE_READ(d, 3);
    const C gi = wd != 0 ? g + wd * w : g, si = rho * q + one_rho * (gi * gi);
    const C delta = sqrt(d + eps) / sqrt(si + eps) * gi;
    a.out[0][i] = cast<T>(w - lr * delta);
    a.out[1][i] = cast<T>(si);
    a.out[2][i] = cast<T>(rho * d + one_rho * (delta * delta));
  });
}
extern "C" __global__ void mge_lamb(const __grid_constant__ Args a) {
  const Step s(a);
  const C b1 = static_cast<C>(s.number[0]), one_b1 = static_cast<C>(1 - s.number[0]);
  const C b2 = static_cast<C>(s.number[1]), one_b2 = static_cast<C>(1 - s.number[1]);
  const C scale1 = static_cast<C>(a.flag ? 1 / (1 - pow(s.number[0], s.t)) : 1);
  const C scale2 = static_cast<C>(a.flag ? 1 / (1 - pow(s.number[1], s.t)) : 1);
  const C eps = static_cast<C>(s.number[2]), wd = static_cast<C>(s.number[3]);
  each(a, [&](i64 i) {
    MGE_READ(w, 0);
    MGE_READ(g, 1);
    MGE_READ(m, 2);
    MGE_READ(v, 3);
    const C mi = b1 * m + one_b1 * g, vi = b2 * v + one_b2 * (g * g);
    const C step = (mi * scale1) / (sqrt(vi * scale2) + eps);
    a.out[0][i] = cast<T>(wd != 0 ? step + wd * w : step);
    a.out[1][i] = cast<T>(mi);
    a.out[2][i] = cast<T>(vi);
  });
}
