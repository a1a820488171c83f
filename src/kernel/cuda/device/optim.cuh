// Optimizer steps, rounded as those of the CPU (kernel/ref/optim): C is float for 16-bit parameters. H is the dtype of
// `hyper`. Numbers that are tensors are read on the device, so that a captured step sees changed ones. V elements are
// moved at once.
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
// What the elements of a step share: made by one thread of a block, since powers in double cost more than an element.
struct Step {
  double number[4], lr, power[2];  // numbers 0 and 1 to the step's count
  bool skip;
};
__device__ inline const Step& step_of(const Args& a) {
  __shared__ Step s;
  if (threadIdx.x == 0) {
    for (int k = 0; k < 4; ++k) s.number[k] = a.hyper && k < kNumbers ? load_as<double>(a.hyper[k]) : a.number[k];
    s.lr = a.lr ? load_as<double>(*a.lr) : 0;
    const double t = a.t ? load_as<double>(*a.t) : 0;
#ifdef MGE_POWERS
    for (int k = 0; k < 2; ++k) s.power[k] = pow(s.number[k], t);
#else
    s.power[0] = t;
#endif
    s.skip = a.skip && load(*a.skip);
  }
  __syncthreads();
  return s;
}
// f(operands, results) for each element, of kIn and kOut.
template <int kIn, int kOut, class F>
__device__ inline void each(const Args& a, bool skip, F f) {
  typedef Pack<T, V> Values;
  const i64 packs = a.n / V;
  for (i64 p = thread_number(); p < packs; p += thread_count()) {
    Values in[4], out[kOut];
    if (skip) {
      for (int o = 0; o < kOut; ++o)
        reinterpret_cast<Values*>(a.out[o])[p] = reinterpret_cast<const Values*>(a.old[o])[p];
      continue;
    }
#pragma unroll
    for (int k = 0; k < kIn; ++k) in[k] = reinterpret_cast<const Values*>(a.in[k])[p];
#pragma unroll
    for (int e = 0; e < V; ++e) {
      C x[4] = {}, y[kOut];
      for (int k = 0; k < kIn; ++k) x[k] = load(in[k].v[e]);
      f(x, y);
      for (int o = 0; o < kOut; ++o) out[o].v[e] = cast<T>(y[o]);
    }
#pragma unroll
    for (int o = 0; o < kOut; ++o) reinterpret_cast<Values*>(a.out[o])[p] = out[o];
  }
  for (i64 i = packs * V + thread_number(); i < a.n; i += thread_count()) {
    C x[4] = {}, y[kOut];
    for (int k = 0; k < kIn; ++k) x[k] = load(a.in[k][i]);
    f(x, y);
    for (int o = 0; o < kOut; ++o) a.out[o][i] = skip ? a.old[o][i] : cast<T>(y[o]);
  }
}

extern "C" __global__ void mge_sgd(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C wd = static_cast<C>(s.number[0]), lr = static_cast<C>(s.lr);
  each<2, 1>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], d = wd != 0 ? g + wd * w : g;
    y[0] = w - lr * d;
  });
}
extern "C" __global__ void mge_sgd_momentum(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C mu = static_cast<C>(s.number[0]), wd = static_cast<C>(s.number[1]), lr = static_cast<C>(s.lr);
  each<3, 2>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], d = wd != 0 ? g + wd * w : g, v = mu * x[2] + d;
    y[0] = w - lr * (a.flag ? d + mu * v : v);
    y[1] = v;
  });
}
#ifdef MGE_POWERS
extern "C" __global__ void mge_adam(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C lr = static_cast<C>(s.lr), b1 = static_cast<C>(s.number[0]), one_b1 = static_cast<C>(1 - s.number[0]);
  const C b2 = static_cast<C>(s.number[1]), one_b2 = static_cast<C>(1 - s.number[1]), eps = static_cast<C>(s.number[2]);
  const C wd = static_cast<C>(s.number[3]), scale1 = static_cast<C>(1 / (1 - s.power[0]));
  const C scale2 = static_cast<C>(1 / (1 - s.power[1]));
  const bool l2 = wd != 0 && !a.flag, decay = wd != 0 && a.flag;
  each<4, 3>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], d = l2 ? g + wd * w : g;
    const C mi = b1 * x[2] + one_b1 * d, vi = b2 * x[3] + one_b2 * (d * d);
    C delta = (mi * scale1) / (sqrt(vi * scale2) + eps);
    if (decay) delta = delta + wd * w;
    y[0] = w - lr * delta;
    y[1] = mi, y[2] = vi;
  });
}
extern "C" __global__ void mge_lamb(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C b1 = static_cast<C>(s.number[0]), one_b1 = static_cast<C>(1 - s.number[0]);
  const C b2 = static_cast<C>(s.number[1]), one_b2 = static_cast<C>(1 - s.number[1]);
  const C scale1 = static_cast<C>(a.flag ? 1 / (1 - s.power[0]) : 1);
  const C scale2 = static_cast<C>(a.flag ? 1 / (1 - s.power[1]) : 1);
  const C eps = static_cast<C>(s.number[2]), wd = static_cast<C>(s.number[3]);
  each<4, 3>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], mi = b1 * x[2] + one_b1 * g, vi = b2 * x[3] + one_b2 * (g * g);
    const C step = (mi * scale1) / (sqrt(vi * scale2) + eps);
    y[0] = wd != 0 ? step + wd * w : step;
    y[1] = mi, y[2] = vi;
  });
}
#else
extern "C" __global__ void mge_adagrad(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C rate = static_cast<C>(s.lr / ((s.power[0] - 1) * s.number[0] + 1)), eps = static_cast<C>(s.number[1]);
  const C wd = static_cast<C>(s.number[2]);
  each<3, 2>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], d = wd != 0 ? g + wd * w : g, si = x[2] + d * d;
    y[0] = w - rate * d / sqrt(si + eps);
    y[1] = si;
  });
}
extern "C" __global__ void mge_adadelta(const __grid_constant__ Args a) {
  const Step& s = step_of(a);
  const C lr = static_cast<C>(s.lr), rho = static_cast<C>(s.number[0]), one_rho = static_cast<C>(1 - s.number[0]);
  const C eps = static_cast<C>(s.number[1]), wd = static_cast<C>(s.number[2]);
  each<4, 3>(a, s.skip, [&](const C* x, C* y) {
    const C w = x[0], g = x[1], d = x[3], gi = wd != 0 ? g + wd * w : g, si = rho * x[2] + one_rho * (gi * gi);
    const C delta = sqrt(d + eps) / sqrt(si + eps) * gi;
    y[0] = w - lr * delta;
    y[1] = si;
    y[2] = rho * d + one_rho * (delta * delta);
  });
}
#endif
