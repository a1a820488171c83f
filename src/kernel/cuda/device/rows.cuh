// Rows that are normalised: a warp for each. exp_body and log_body come before. V elements are moved at once where rows
// are of whole packs.
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

// f(pack's number, its elements of x, of g) for the packs of a row that are the lane's.
typedef Pack<T, V> Values;
template <class F>
__device__ inline void each_pack(const Args& a, const T* x, const T* g, F f) {
  const i64 packs = a.size / V;
#pragma unroll 4
  for (i64 p = threadIdx.x & 31; p < packs; p += 32) {
    const Values v = reinterpret_cast<const Values*>(x)[p], u = reinterpret_cast<const Values*>(g)[p];
    f(p, v, u);
  }
}
extern "C" __global__ void mge_layer_norm(const __grid_constant__ Args a) {
  const C size = static_cast<C>(a.size);
  MGE_EACH_ROW {
    const T* x = a.x + row * a.size;
    C sum = 0, square = 0;
    each_pack(a, x, x, [&](i64, const Values& v, const Values&) {
      for (int k = 0; k < V; ++k) sum = sum + load(v.v[k]);
    });
    const C mean = over_lanes(sum, true) / size;
    each_pack(a, x, x, [&](i64, const Values& v, const Values&) {
      for (int k = 0; k < V; ++k) square = square + (load(v.v[k]) - mean) * (load(v.v[k]) - mean);
    });
    const C rstd = C(1) / sqrt(over_lanes(square, true) / size + static_cast<C>(a.eps));
    each_pack(a, x, x, [&](i64 p, const Values& v, const Values&) {
      Values y, w, b;
      if (a.weight) w = reinterpret_cast<const Values*>(a.weight)[p], b = reinterpret_cast<const Values*>(a.bias)[p];
      for (int k = 0; k < V; ++k) {
        const C hat = (load(v.v[k]) - mean) * rstd;
        y.v[k] = cast<T>(a.weight ? hat * load(w.v[k]) + load(b.v[k]) : hat);
      }
      reinterpret_cast<Values*>(a.y + row * a.size)[p] = y;
    });
    if (MGE_LEAD) a.mean[row] = cast<T>(mean), a.rstd[row] = cast<T>(rstd);
  }
}
extern "C" __global__ void mge_layer_norm_bwd(const __grid_constant__ Args a) {
  const C size = static_cast<C>(a.size);
  MGE_EACH_ROW {
    const T *x = a.x + row * a.size, *g = a.g + row * a.size;
    const C mean = load(a.mean_in[row]), rstd = load(a.rstd_in[row]);
    auto weight = [&](i64 p) { return a.weight ? reinterpret_cast<const Values*>(a.weight)[p] : Values{}; };
    auto scaled = [&](T v, T w) { return a.weight ? load(v) * load(w) : load(v); };
    C sum = 0, dot = 0;
    each_pack(a, x, g, [&](i64 p, const Values& v, const Values& u) {
      const Values w = weight(p);
      for (int k = 0; k < V; ++k) {
        const C s = scaled(u.v[k], w.v[k]);
        sum = sum + s, dot = dot + s * ((load(v.v[k]) - mean) * rstd);
      }
    });
    sum = over_lanes(sum, true) / size, dot = over_lanes(dot, true) / size;
    each_pack(a, x, g, [&](i64 p, const Values& v, const Values& u) {
      const Values w = weight(p);
      Values y;
      for (int k = 0; k < V; ++k)
        y.v[k] = cast<T>(rstd * (scaled(u.v[k], w.v[k]) - sum - (load(v.v[k]) - mean) * rstd * dot));
      reinterpret_cast<Values*>(a.y + row * a.size)[p] = y;
    });
  }
}
// Gradients of weight and bias: parts of 32 rows, then all parts of a column, 32 columns to a block.
extern "C" __global__ void mge_layer_norm_parts(const __grid_constant__ Args a) {
  const i64 packs = a.size / V;
  for (i64 t = thread_number(); t < a.chunks * packs; t += thread_count()) {
    const i64 chunk = t / packs, p = t - chunk * packs, first = chunk * 32;
    const i64 last = first + 32 < a.rows ? first + 32 : a.rows;
    C gw[V] = {}, gb[V] = {};
#pragma unroll 4
    for (i64 row = first; row < last; ++row) {
      const Values v = reinterpret_cast<const Values*>(a.x + row * a.size)[p];
      const Values u = reinterpret_cast<const Values*>(a.g + row * a.size)[p];
      const C mean = load(a.mean_in[row]), rstd = load(a.rstd_in[row]);
      for (int k = 0; k < V; ++k) {
        const C g = load(u.v[k]);
        gw[k] = gw[k] + g * ((load(v.v[k]) - mean) * rstd), gb[k] = gb[k] + g;
      }
    }
    for (int k = 0; k < V; ++k) {
      a.part[chunk * a.size + p * V + k] = gw[k];
      a.part[(a.chunks + chunk) * a.size + p * V + k] = gb[k];
    }
  }
}
extern "C" __global__ void mge_layer_norm_columns(const __grid_constant__ Args a) {
  __shared__ C all[2][32][33];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const i64 i = static_cast<i64>(blockIdx.x) * 32 + lane;
  C gw = 0, gb = 0;
  for (i64 k = warp; i < a.size && k < a.chunks; k += warps)
    gw = gw + a.part[k * a.size + i], gb = gb + a.part[(a.chunks + k) * a.size + i];
  all[0][warp][lane] = gw, all[1][warp][lane] = gb;
  __syncthreads();
  if (warp || i >= a.size) return;
  for (int w = 1; w < warps; ++w) gw = gw + all[0][w][lane], gb = gb + all[1][w][lane];
  a.gw[i] = cast<T>(gw);
  a.gb[i] = cast<T>(gb);
}
