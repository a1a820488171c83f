// Rows that are normalised: a warp for each. A: what is summed in, float or double. exp_body and log_body come before.
#pragma once
typedef Compute<T> C;
struct Args {
  i64 rows, size;
  const T *x, *g, *mean_in, *rstd_in, *weight, *bias;
  T *y, *mean, *rstd, *gw, *gb;
  C* part;  // [2, chunks, size]
  i64 chunks;
  double eps;
};
__device__ inline C joined(C a, C b, bool sum) { return sum ? a + b : a != a || a > b ? a : b; }
// The sum, or the maximum, of a value over the lanes, for all of them.
__device__ inline C over_lanes(C v, bool sum) {
  for (int half = 16; half > 0; half /= 2) v = joined(v, __shfl_down_sync(0xffffffffu, v, half), sum);
  return __shfl_sync(0xffffffffu, v, 0);
}
__device__ inline C exp_of(C x) {
  C y;
  exp_body(x, y);
  return y;
}
template <class F>
__device__ inline C sum_of(const Args& a, F f) {
  C v = 0;
  for (i64 i = threadIdx.x & 31; i < a.size; i += 32) v = v + f(i);
  return over_lanes(v, true);
}
// f(element in the row) for each; rows are warps.
template <class F>
__device__ inline void put_row(const Args& a, i64 row, F f) {
  for (i64 i = threadIdx.x & 31; i < a.size; i += 32) a.y[row * a.size + i] = cast<T>(f(i));
}
#define MGE_EACH_ROW for (i64 row = thread_number() >> 5; row < a.rows; row += thread_count() >> 5)
#define MGE_LEAD ((threadIdx.x & 31) == 0)

__device__ inline void soft(const Args& a, bool logarithm) {
  MGE_EACH_ROW {
    const T* x = a.x + row * a.size;
    C top = -kInfinity;
    for (i64 i = threadIdx.x & 31; i < a.size; i += 32) top = joined(top, load(x[i]), false);
    top = over_lanes(top, false);
    const C sum = sum_of(a, [&](i64 i) { return exp_of(load(x[i]) - top); });
    C less;
    log_body(sum, less);
    put_row(a, row, [&](i64 i) {
      const C v = load(x[i]) - top;
      return logarithm ? v - less : exp_of(v) / sum;
    });
  }
}
extern "C" __global__ void mge_softmax(const __grid_constant__ Args a) { soft(a, false); }
extern "C" __global__ void mge_logsoftmax(const __grid_constant__ Args a) { soft(a, true); }
extern "C" __global__ void mge_softmax_bwd(const __grid_constant__ Args a) {
  MGE_EACH_ROW {
    const T *y = a.x + row * a.size, *g = a.g + row * a.size;
    const C dot = sum_of(a, [&](i64 i) { return load(y[i]) * load(g[i]); });
    put_row(a, row, [&](i64 i) { return load(y[i]) * (load(g[i]) - dot); });
  }
}
extern "C" __global__ void mge_logsoftmax_bwd(const __grid_constant__ Args a) {
  MGE_EACH_ROW {
    const T *y = a.x + row * a.size, *g = a.g + row * a.size;
    const C sum = sum_of(a, [&](i64 i) { return load(g[i]); });
    put_row(a, row, [&](i64 i) { return load(g[i]) - exp_of(load(y[i])) * sum; });
  }
}

extern "C" __global__ void mge_layer_norm(const __grid_constant__ Args a) {
  const C size = static_cast<C>(a.size);
  MGE_EACH_ROW {
    const T* x = a.x + row * a.size;
    const C mean = sum_of(a, [&](i64 i) { return load(x[i]); }) / size;
    const C var = sum_of(a, [&](i64 i) { return (load(x[i]) - mean) * (load(x[i]) - mean); }) / size;
    const C rstd = C(1) / sqrt(var + static_cast<C>(a.eps));
    put_row(a, row, [&](i64 i) {
      const C v = (load(x[i]) - mean) * rstd;
      return a.weight ? v * load(a.weight[i]) + load(a.bias[i]) : v;
    });
    if (MGE_LEAD) a.mean[row] = cast<T>(mean), a.rstd[row] = cast<T>(rstd);
  }
}
extern "C" __global__ void mge_layer_norm_bwd(const __grid_constant__ Args a) {
  const C size = static_cast<C>(a.size);
  MGE_EACH_ROW {
    const T *x = a.x + row * a.size, *g = a.g + row * a.size;
    const C mean = load(a.mean_in[row]), rstd = load(a.rstd_in[row]);
    auto scaled = [&](i64 i) { return a.weight ? load(g[i]) * load(a.weight[i]) : load(g[i]); };
    auto hat = [&](i64 i) { return (load(x[i]) - mean) * rstd; };
    const C sum = sum_of(a, scaled) / size, dot = sum_of(a, [&](i64 i) { return scaled(i) * hat(i); }) / size;
    put_row(a, row, [&](i64 i) { return rstd * (scaled(i) - sum - hat(i) * dot); });
  }
}
// Gradients of weight and bias: parts of 64 rows, then all parts of a column.
extern "C" __global__ void mge_layer_norm_parts(const __grid_constant__ Args a) {
  for (i64 t = thread_number(); t < a.chunks * a.size; t += thread_count()) {
    const i64 i = t % a.size, first = t / a.size * 64, last = first + 64 < a.rows ? first + 64 : a.rows;
    C gw = 0, gb = 0;
    for (i64 row = first; row < last; ++row) {
      const C g = load(a.g[row * a.size + i]);
      gw = gw + g * ((load(a.x[row * a.size + i]) - load(a.mean_in[row])) * load(a.rstd_in[row]));
      gb = gb + g;
    }
    a.part[t] = gw;
    a.part[a.chunks * a.size + t] = gb;
  }
}
extern "C" __global__ void mge_layer_norm_columns(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.size; i += thread_count()) {
    C gw = 0, gb = 0;
    for (i64 k = 0; k < a.chunks; ++k) gw = gw + a.part[k * a.size + i], gb = gb + a.part[(a.chunks + k) * a.size + i];
    a.gw[i] = cast<T>(gw);
    a.gb[i] = cast<T>(gb);
  }
}
