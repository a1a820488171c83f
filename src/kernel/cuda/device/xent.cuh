// Cross entropy with a label for each row: a block of 256 threads for a row, V elements at once. The maximum and the sum
// of a row are found in one pass, what has been added up being scaled when the maximum grows. exp_body and log_body come
// before.
#pragma once
typedef Compute<T> C;
typedef Pack<T, V> Values;
struct Args {
  i64 rows, size;
  const T *x, *g;  // backward: x is p
  const int32_t* label;
  T *loss, *y;
  i64* error;
};
__device__ inline C exp_of(C x) {
  C y;
  exp_body(x, y);
  return y;
}
// exp(v - top) where both may be -infinity: nothing.
__device__ inline C share(C v, C top) { return v == -kInfinity ? C(0) : exp_of(v - top); }
__device__ inline C larger(C a, C b) { return a != a || a > b ? a : b; }
__device__ inline i64 label_of(const Args& a, i64 row) {
  const i64 label = a.label[row];
  if (label >= 0 && label < a.size) return label;
  if (threadIdx.x == 0) report(a.error, label, row, 0);
  return 0;
}

extern "C" __global__ void mge_xent(const __grid_constant__ Args a) {
  __shared__ C tops[256], sums[256];
  const int me = threadIdx.x;
  for (i64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = a.x + row * a.size;
    C top = -kInfinity, sum = 0;
#pragma unroll 4
    for (i64 p = me; p < a.size / V; p += 256) {
      const Values v = reinterpret_cast<const Values*>(x)[p];
      C here = load(v.v[0]);
      for (int k = 1; k < V; ++k) here = larger(here, load(v.v[k]));
      const C now = larger(top, here);
      if (now != top) sum = sum * share(top, now), top = now;
      for (int k = 0; k < V; ++k) sum = sum + share(load(v.v[k]), top);
    }
    tops[me] = top, sums[me] = sum;
    for (int half = 128; half > 0; half /= 2) {
      __syncthreads();
      if (me >= half) continue;
      const C t = larger(tops[me], tops[me + half]);
      sums[me] = sums[me] * share(tops[me], t) + sums[me + half] * share(tops[me + half], t);
      tops[me] = t;
    }
    __syncthreads();
    top = tops[0], sum = sums[0];
    __syncthreads();
    const i64 label = label_of(a, row);
    if (me == 0) {
      C less;
      log_body(sum, less);
      a.loss[row] = cast<T>(less - (load(x[label]) - top));
    }
    const C scale = C(1) / sum;
#pragma unroll 4
    for (i64 p = me; p < a.size / V; p += 256) {
      const Values v = reinterpret_cast<const Values*>(x)[p];
      Values y;
      for (int k = 0; k < V; ++k) y.v[k] = cast<T>(exp_of(load(v.v[k]) - top) * scale);
      reinterpret_cast<Values*>(a.y + row * a.size)[p] = y;
    }
  }
}
extern "C" __global__ void mge_xent_bwd(const __grid_constant__ Args a) {
  for (i64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const i64 label = label_of(a, row);
    const C g = load(a.g[row]);
#pragma unroll 4
    for (i64 p = threadIdx.x; p < a.size / V; p += 256) {
      const Values v = reinterpret_cast<const Values*>(a.x + row * a.size)[p];
      Values y;
      for (int k = 0; k < V; ++k) y.v[k] = cast<T>((load(v.v[k]) - (p * V + k == label ? C(1) : C(0))) * g);
      reinterpret_cast<Values*>(a.y + row * a.size)[p] = y;
    }
  }
}
