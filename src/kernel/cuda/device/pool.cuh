// Pooling with the CPU's bits: the first maximum counts and NaN beats every number; sums over a window in double; where
// windows overlap, a pixel adds what it gets from them in their order.
#pragma once
struct Args {
  i64 total;
  T* out;
  const T *x, *g, *v;  // g: what comes back to the windows; v: what they take
  i64 h, w, oh, ow, kh, kw, sh, sw, ph, pw, include_pad;
};
struct Window {
  i64 y0, y1, x0, x1;
  __device__ Window(const Args& a, i64 oy, i64 ox)
      : y0(oy * a.sh - a.ph), y1(y0 + a.kh), x0(ox * a.sw - a.pw), x1(x0 + a.kw) {
    y0 = y0 < 0 ? 0 : y0, y1 = y1 > a.h ? a.h : y1, x0 = x0 < 0 ? 0 : x0, x1 = x1 > a.w ? a.w : x1;
  }
  __device__ i64 count() const { return (y1 - y0) * (x1 - x0); }
};
typedef Compute<T> C;
__device__ inline i64 best_of(const Args& a, i64 plane, const Window& win) {
  i64 best = win.y0 * a.w + win.x0;
  C b = load(a.x[plane + best]);
  for (i64 y = win.y0; y < win.y1; ++y)
    for (i64 x = win.x0; x < win.x1; ++x) {
      const C v = load(a.x[plane + y * a.w + x]);
      if (v > b || (v != v && b == b)) best = y * a.w + x, b = v;
    }
  return best;
}
struct Output {  // of thread i of a forward kernel
  i64 plane, oy, ox;
  __device__ Output(const Args& a, i64 i) : plane(i / a.ow / a.oh * a.h * a.w), oy(i / a.ow % a.oh), ox(i % a.ow) {}
};
// f(oy, ox, place in g) for the windows that pixel i lies in, in their order.
template <class F>
__device__ inline void each_window(const Args& a, i64 i, F f) {
  const i64 x = i % a.w, y = i / a.w % a.h, p = i / a.w / a.h;
  const i64 low_y = y + a.ph - a.kh + 1, low_x = x + a.pw - a.kw + 1;
  i64 y1 = (y + a.ph) / a.sh, x1 = (x + a.pw) / a.sw;
  const i64 y0 = low_y <= 0 ? 0 : (low_y + a.sh - 1) / a.sh, x0 = low_x <= 0 ? 0 : (low_x + a.sw - 1) / a.sw;
  y1 = y1 >= a.oh ? a.oh - 1 : y1, x1 = x1 >= a.ow ? a.ow - 1 : x1;
  for (i64 oy = y0; oy <= y1; ++oy)
    for (i64 ox = x0; ox <= x1; ++ox) f(oy, ox, (p * a.oh + oy) * a.ow + ox);
}

extern "C" __global__ void mge_max_pool(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.total; i += thread_count()) {
    const Output o(a, i);
    a.out[i] = a.x[o.plane + best_of(a, o.plane, Window(a, o.oy, o.ox))];
  }
}
extern "C" __global__ void mge_max_pool_take(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.total; i += thread_count()) {
    const Output o(a, i);
    a.out[i] = a.v[o.plane + best_of(a, o.plane, Window(a, o.oy, o.ox))];
  }
}
extern "C" __global__ void mge_max_pool_bwd(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.total; i += thread_count()) {
    const i64 in = i % (a.h * a.w), plane = i - in;
    C sum = 0;
    each_window(a, i, [&](i64 oy, i64 ox, i64 from) {
      if (best_of(a, plane, Window(a, oy, ox)) == in) sum = sum + load(a.g[from]);
    });
    a.out[i] = cast<T>(sum);
  }
}
extern "C" __global__ void mge_avg_pool(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.total; i += thread_count()) {
    const Output o(a, i);
    const Window win(a, o.oy, o.ox);
    double sum = 0;
    for (i64 y = win.y0; y < win.y1; ++y)
      for (i64 x = win.x0; x < win.x1; ++x) sum += static_cast<double>(load(a.x[o.plane + y * a.w + x]));
    a.out[i] = cast<T>(static_cast<C>(sum / static_cast<double>(a.include_pad ? a.kh * a.kw : win.count())));
  }
}
extern "C" __global__ void mge_avg_pool_bwd(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.total; i += thread_count()) {
    C sum = 0;
    each_window(a, i, [&](i64 oy, i64 ox, i64 from) {
      sum = sum + load(a.g[from]) / static_cast<C>(a.include_pad ? a.kh * a.kw : Window(a, oy, ox).count());
    });
    a.out[i] = cast<T>(sum);
  }
}
