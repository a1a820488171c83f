// Any product [.., m, k] x [.., k, n] + [n], a thread for each element: integers, and what no library takes. A: what is
// summed in, double or an unsigned integer that wraps.
#pragma once
struct Args {
  T* y;
  const T *a, *b, *bias;
  i64 total, m, n, k, am, ak, bk, bn;  // strides of a and b
  i64 rank, size[6], a_batch[6], b_batch[6];
};
__device__ inline A wide(T v) { return static_cast<A>(load(v)); }
extern "C" __global__ void mge_matmul(const __grid_constant__ Args g) {
  for (i64 i = thread_number(); i < g.total; i += thread_count()) {
    const i64 col = i % g.n, row = i / g.n % g.m;
    i64 batch = i / g.n / g.m, pa = row * g.am, pb = col * g.bn;
    for (i64 d = g.rank - 1; d >= 0; --d) {
      pa += batch % g.size[d] * g.a_batch[d];
      pb += batch % g.size[d] * g.b_batch[d];
      batch /= g.size[d];
    }
    A sum = 0;
    for (i64 k = 0; k < g.k; ++k) sum += wide(g.a[pa + k * g.ak]) * wide(g.b[pb + k * g.bk]);
    if (g.bias) sum += wide(g.bias[col]);
    g.y[i] = cast<T>(static_cast<R>(sum));
  }
}
