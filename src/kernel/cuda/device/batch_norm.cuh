// Batch normalisation: sums over all but the channels in blocks of 256 threads, parts of a channel by 32 warps, then one
// pass over the elements. X: images; P: parameters and statistics; sums in C, float or double, parts in double.
// Where channels lie together (MGE_LAST) a thread keeps V of them and walks down the rows, so that what belongs to a
// channel stays in registers and `flying` rows are read before the first is used; else pixels lie together.
#pragma once
typedef Compute<X> C;
constexpr int flying = 4;
struct Args {
  const X *x, *g;
  const P *weight, *bias, *mean_in, *rstd_in;
  X* y;
  P *mean, *var, *rstd, *gw, *gb;
  double* part;  // [2, parts, channels]
  C* factor;     // [4, channels]: what the pass over elements needs
  i64 total, channels, inner, rows, parts, groups, lanes, chunk;
  double eps;
};
__device__ inline C shift_of(const Args& a, i64 c) {
#ifdef MGE_LAST
  return a.g ? static_cast<C>(load(a.mean_in[c])) : load(a.x[c]);
#else
  return a.g ? static_cast<C>(load(a.mean_in[c])) : load(a.x[c * a.inner]);
#endif
}

#ifdef MGE_LAST
// Of a block: its channels (a group of lanes * V) and its rows (a part).
struct Tile {
  int lanes, deep, lane, down;
  i64 group, part, c, first, last;
  bool mine;
  __device__ explicit Tile(const Args& a) {
    lanes = static_cast<int>(a.lanes), deep = 256 / lanes;
    lane = threadIdx.x % lanes, down = threadIdx.x / lanes;
    group = blockIdx.x % a.groups, part = blockIdx.x / a.groups;
    c = (group * lanes + lane) * V;
    first = part * a.chunk, last = first + a.chunk < a.rows ? first + a.chunk : a.rows;
    mine = c < a.channels && down < deep;
  }
};
typedef Pack<X, V> Images;

template <bool backward>
__device__ inline void sums(const Args& a) {
  __shared__ C s[256 * V], q[256 * V];
  const Tile t(a);
  C sum[V] = {}, square[V] = {}, shift[V];
  for (int k = 0; t.mine && k < V; ++k) shift[k] = shift_of(a, t.c + k);
  for (i64 r0 = t.first + t.down; t.mine && r0 < t.last; r0 += flying * t.deep) {
    Images x[flying], g[backward ? flying : 1];
#pragma unroll
    for (int u = 0; u < flying; ++u) {
      const i64 r = r0 + u * t.deep;
      if (r >= t.last) continue;
      x[u] = *reinterpret_cast<const Images*>(a.x + r * a.channels + t.c);
      if constexpr (backward) g[u] = *reinterpret_cast<const Images*>(a.g + r * a.channels + t.c);
    }
#pragma unroll
    for (int u = 0; u < flying; ++u) {
      if (r0 + u * t.deep >= t.last) continue;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const C v = load(x[u].v[k]) - shift[k];
        if constexpr (backward) {
          const C w = load(g[u].v[k]);
          sum[k] = sum[k] + w, square[k] = square[k] + w * v;
        } else {
          sum[k] = sum[k] + v, square[k] = square[k] + v * v;
        }
      }
    }
  }
  for (int k = 0; k < V; ++k) s[threadIdx.x * V + k] = sum[k], q[threadIdx.x * V + k] = square[k];
  __syncthreads();
  for (int column = threadIdx.x; column < t.lanes * V; column += 256) {
    const i64 c = t.group * t.lanes * V + column;
    if (c >= a.channels) continue;
    double all = 0, squares = 0;
    for (int d = 0; d < t.deep; ++d) all += s[d * t.lanes * V + column], squares += q[d * t.lanes * V + column];
    a.part[t.part * a.channels + c] = all;
    a.part[(a.parts + t.part) * a.channels + c] = squares;
  }
}
#else
template <bool backward>
__device__ inline void sums(const Args& a) {
  __shared__ double s[256], q[256];
  const i64 c = blockIdx.x % a.channels, part = blockIdx.x / a.channels;
  const i64 last = (part + 1) * a.chunk < a.rows ? (part + 1) * a.chunk : a.rows;  // of rows * inner elements
  const C shift = shift_of(a, c);
  C sum = 0, square = 0;
  for (i64 j = part * a.chunk + threadIdx.x; j < last; j += 256) {
    const unsigned n = static_cast<unsigned>(j) / static_cast<unsigned>(a.inner);
    const i64 at = (n * a.channels + c) * a.inner + (j - n * a.inner);
    const C v = load(a.x[at]) - shift;
    if constexpr (backward) {
      const C g = load(a.g[at]);
      sum = sum + g, square = square + g * v;
    } else {
      sum = sum + v, square = square + v * v;
    }
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
extern "C" __global__ void mge_bn_sums(const __grid_constant__ Args a) { sums<false>(a); }
extern "C" __global__ void mge_bn_sums_bwd(const __grid_constant__ Args a) { sums<true>(a); }

// A block adds the parts of 32 channels, its warps those of every 32nd part, and says what follows from them.
extern "C" __global__ void mge_bn_finish(const __grid_constant__ Args a) {
  __shared__ double all[2][32][33];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const double count = static_cast<double>(a.total / a.channels);
  const i64 c = static_cast<i64>(blockIdx.x) * 32 + lane;
  double s = 0, q = 0;
  for (i64 p = warp; c < a.channels && p < a.parts; p += warps) {
    s += a.part[p * a.channels + c];
    q += a.part[(a.parts + p) * a.channels + c];
  }
  all[0][warp][lane] = s, all[1][warp][lane] = q;
  __syncthreads();
  if (warp || c >= a.channels) return;
  for (int w = 1; w < warps; ++w) s += all[0][w][lane], q += all[1][w][lane];
  C* factor = a.factor + c;
  if (a.g) {  // gx = k * (g - gb / n - xhat * gw / n)
    const double rstd = static_cast<double>(load(a.rstd_in[c])), k = static_cast<double>(load(a.weight[c])) * rstd;
    q *= rstd;
    a.gb[c] = cast<P>(static_cast<C>(s)), a.gw[c] = cast<P>(static_cast<C>(q));
    factor[0] = static_cast<C>(load(a.mean_in[c]));
    factor[a.channels] = static_cast<C>(k);
    factor[2 * a.channels] = static_cast<C>(s / count);
    factor[3 * a.channels] = static_cast<C>(k * rstd * (q / count));
  } else {
    const double mean = s / count + static_cast<double>(shift_of(a, c));
    double var = q / count - (s / count) * (s / count);
    if (var < 0) var = 0;
    const double rstd = 1 / sqrt(var + a.eps);
    a.mean[c] = cast<P>(static_cast<C>(mean)), a.var[c] = cast<P>(static_cast<C>(var));
    a.rstd[c] = cast<P>(static_cast<C>(rstd));
    factor[0] = static_cast<C>(mean);
    factor[a.channels] = static_cast<C>(rstd * static_cast<double>(load(a.weight[c])));
    factor[2 * a.channels] = static_cast<C>(load(a.bias[c]));
    factor[3 * a.channels] = 0;
  }
}

template <bool backward>
__device__ inline X result_of(X x, X g, C f0, C f1, C f2, C f3) {
  const C v = load(x) - f0;
  if constexpr (backward) return cast<X>(f1 * (load(g) - f2) - v * f3);
  return cast<X>(v * f1 + f2);
}
#ifdef MGE_LAST
template <bool backward>
__device__ inline void elements(const Args& a) {
  const Tile t(a);
  if (!t.mine) return;
  C f[4][V];
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < V; ++k) f[i][k] = a.factor[i * a.channels + t.c + k];
  for (i64 r0 = t.first + t.down; r0 < t.last; r0 += flying * t.deep) {
    Images x[flying], g[backward ? flying : 1];
#pragma unroll
    for (int u = 0; u < flying; ++u) {
      const i64 r = r0 + u * t.deep;
      if (r >= t.last) continue;
      x[u] = *reinterpret_cast<const Images*>(a.x + r * a.channels + t.c);
      if constexpr (backward) g[u] = *reinterpret_cast<const Images*>(a.g + r * a.channels + t.c);
    }
#pragma unroll
    for (int u = 0; u < flying; ++u) {
      const i64 r = r0 + u * t.deep;
      if (r >= t.last) continue;
      const Images& gradient = backward ? g[backward ? u : 0] : x[u];
      Images y;
#pragma unroll
      for (int k = 0; k < V; ++k)
        y.v[k] = result_of<backward>(x[u].v[k], gradient.v[k], f[0][k], f[1][k], f[2][k], f[3][k]);
      *reinterpret_cast<Images*>(a.y + r * a.channels + t.c) = y;
    }
  }
}
#else
// V pixels of one channel.
template <bool backward>
__device__ inline void elements(const Args& a) {
  typedef Pack<X, V> Images;
  for (i64 p = thread_number(); p < a.total / V; p += thread_count()) {
    const i64 at = p * V;
    const unsigned c = static_cast<unsigned>(at) / static_cast<unsigned>(a.inner) % static_cast<unsigned>(a.channels);
    const Images x = *reinterpret_cast<const Images*>(a.x + at);
    Images g = x, y;
    if constexpr (backward) g = *reinterpret_cast<const Images*>(a.g + at);
    const C f0 = a.factor[c], f1 = a.factor[a.channels + c], f2 = a.factor[2 * a.channels + c];
    const C f3 = a.factor[3 * a.channels + c];
    for (int k = 0; k < V; ++k) y.v[k] = result_of<backward>(x.v[k], g.v[k], f0, f1, f2, f3);
    *reinterpret_cast<Images*>(a.y + at) = y;
  }
}
#endif
extern "C" __global__ void mge_bn_elements(const __grid_constant__ Args a) { elements<false>(a); }
extern "C" __global__ void mge_bn_elements_bwd(const __grid_constant__ Args a) { elements<true>(a); }
