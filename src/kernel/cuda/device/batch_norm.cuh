// Batch normalisation: sums over all but the channels in blocks of 256 threads, parts of a channel by a warp, then one
// pass over the elements. V channels are read at once where they lie together (MGE_LAST); else the pixels do.
// C: float, or double for float64. Parts are double.
#pragma once
typedef Compute<T> C;
struct Args {
  const T *x, *g, *weight, *bias, *mean_in, *rstd_in;
  T *y, *mean, *var, *rstd, *gw, *gb;
  double* part;  // [2, parts, channels]
  C* factor;     // [3, channels]: what the pass over elements needs
  i64 total, channels, inner, rows, parts, groups, lanes, chunk;
  double eps;
};
// Two sums of the elements of a channel: of x and its square, both less a value of the channel; or of the gradient and
// its product with the normalised x.
__device__ inline void sums_of(const Args& a, i64 at, C shift, C scale, C& s, C& q) {
  const C v = load(a.x[at]) - shift;
  if (a.g) {
    const C g = load(a.g[at]);
    s = s + g, q = q + g * (v * scale);
  } else {
    s = s + v, q = q + v * v;
  }
}
__device__ inline C shift_of(const Args& a, i64 c) {
#ifdef MGE_LAST
  return a.g ? load(a.mean_in[c]) : load(a.x[c]);
#else
  return a.g ? load(a.mean_in[c]) : load(a.x[c * a.inner]);
#endif
}

#ifdef MGE_LAST
extern "C" __global__ void mge_bn_sums(const __grid_constant__ Args a) {
  __shared__ C s[256 * V], q[256 * V];
  const int lanes = static_cast<int>(a.lanes), deep = 256 / lanes, lane = threadIdx.x % lanes, down = threadIdx.x / lanes;
  const i64 group = blockIdx.x % a.groups, part = blockIdx.x / a.groups, c = (group * lanes + lane) * V;
  const i64 last = (part + 1) * a.chunk < a.rows ? (part + 1) * a.chunk : a.rows;
  const bool mine = c < a.channels && down < deep;
  C sum[V] = {}, square[V] = {}, shift[V], scale[V];
  for (int k = 0; mine && k < V; ++k) shift[k] = shift_of(a, c + k), scale[k] = a.g ? load(a.rstd_in[c + k]) : C(1);
  for (i64 r = part * a.chunk + down; mine && r < last; r += deep) {
    const auto x = *reinterpret_cast<const Pack<T, V>*>(a.x + r * a.channels + c);
    Pack<T, V> g = x;
    if (a.g) g = *reinterpret_cast<const Pack<T, V>*>(a.g + r * a.channels + c);
    for (int k = 0; k < V; ++k) {
      const C v = load(x.v[k]) - shift[k], u = load(g.v[k]);
      sum[k] = sum[k] + (a.g ? u : v);
      square[k] = square[k] + (a.g ? u * (v * scale[k]) : v * v);
    }
  }
  for (int k = 0; k < V; ++k) s[threadIdx.x * V + k] = sum[k], q[threadIdx.x * V + k] = square[k];
  __syncthreads();
  if (!mine || down) return;
  for (int k = 0; k < V; ++k) {
    double all = 0, squares = 0;
    for (int d = 0; d < deep; ++d) all += s[(d * lanes + lane) * V + k], squares += q[(d * lanes + lane) * V + k];
    a.part[part * a.channels + c + k] = all;
    a.part[(a.parts + part) * a.channels + c + k] = squares;
  }
}
#else
extern "C" __global__ void mge_bn_sums(const __grid_constant__ Args a) {
  __shared__ double s[256], q[256];
  const i64 c = blockIdx.x % a.channels, part = blockIdx.x / a.channels;
  const i64 last = (part + 1) * a.chunk < a.rows ? (part + 1) * a.chunk : a.rows;  // of rows * inner elements
  const C shift = shift_of(a, c), scale = a.g ? load(a.rstd_in[c]) : C(1);
  C sum = 0, square = 0;
  for (i64 j = part * a.chunk + threadIdx.x; j < last; j += 256) {
    const unsigned n = static_cast<unsigned>(j) / static_cast<unsigned>(a.inner);
    sums_of(a, (n * a.channels + c) * a.inner + (j - n * a.inner), shift, scale, sum, square);
  }
  s[threadIdx.x] = sum, q[threadIdx.x] = square;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half], q[threadIdx.x] += q[threadIdx.x + half];
  }
  if (threadIdx.x) return;
  a.part[part * a.channels + c] = s[0];
  a.part[(a.parts + part) * a.channels + c] = q[0];
}
#endif

// A warp adds the parts of a channel and says what follows from them.
extern "C" __global__ void mge_bn_finish(const __grid_constant__ Args a) {
  const double count = static_cast<double>(a.total / a.channels);
  for (i64 c = thread_number() >> 5; c < a.channels; c += thread_count() >> 5) {
    double s = 0, q = 0;
    for (i64 p = threadIdx.x & 31; p < a.parts; p += 32) {
      s += a.part[p * a.channels + c];
      q += a.part[(a.parts + p) * a.channels + c];
    }
    for (int half = 16; half > 0; half /= 2) {
      s += __shfl_down_sync(0xffffffffu, s, half);
      q += __shfl_down_sync(0xffffffffu, q, half);
    }
    if (threadIdx.x & 31) continue;
    if (a.g) {  // gx = k * (g - gb / n - xhat * gw / n)
      a.gb[c] = cast<T>(static_cast<C>(s)), a.gw[c] = cast<T>(static_cast<C>(q));
      a.factor[c] = static_cast<C>(static_cast<double>(load(a.weight[c])) * static_cast<double>(load(a.rstd_in[c])));
      a.factor[a.channels + c] = static_cast<C>(s / count);
      a.factor[2 * a.channels + c] = static_cast<C>(q / count);
    } else {
      const double mean = s / count + static_cast<double>(shift_of(a, c));
      double var = q / count - (s / count) * (s / count);
      if (var < 0) var = 0;
      const double rstd = 1 / sqrt(var + a.eps);
      a.mean[c] = cast<T>(static_cast<C>(mean)), a.var[c] = cast<T>(static_cast<C>(var));
      a.rstd[c] = cast<T>(static_cast<C>(rstd));
      a.factor[c] = static_cast<C>(mean);
      a.factor[a.channels + c] = static_cast<C>(rstd * static_cast<double>(load(a.weight[c])));
      a.factor[2 * a.channels + c] = load(a.bias[c]);
    }
  }
}

__device__ inline T result_of(const Args& a, T x, T g, i64 c) {
  const C f0 = a.factor[c], f1 = a.factor[a.channels + c], f2 = a.factor[2 * a.channels + c];
  if (!a.g) return cast<T>((load(x) - f0) * f1 + f2);
  const C hat = (load(x) - load(a.mean_in[c])) * load(a.rstd_in[c]);
  return cast<T>(f0 * (load(g) - f1 - hat * f2));
}
// V elements that lie together: of neighbouring channels, or of one.
extern "C" __global__ void mge_bn_elements(const __grid_constant__ Args a) {
  for (i64 p = thread_number(); p < a.total / V; p += thread_count()) {
    const i64 at = p * V;
#ifdef MGE_LAST
    const i64 c = static_cast<unsigned>(at % a.channels);
#else
    const i64 c = at / a.inner % a.channels;
#endif
    const auto x = *reinterpret_cast<const Pack<T, V>*>(a.x + at);
    Pack<T, V> g = x, y;
    if (a.g) g = *reinterpret_cast<const Pack<T, V>*>(a.g + at);
    for (int k = 0; k < V; ++k) y.v[k] = result_of(a, x.v[k], g.v[k], MGE_CHANNEL);
    *reinterpret_cast<Pack<T, V>*>(a.y + at) = y;
  }
}
