// Picking and placing at positions that are values. T moves the elements; R is the type of raw indices.
#pragma once

/// Axes that places are made of: place = sum over axes of (i / step % size) * stride.
struct Axes {
  i64 rank, size[8], stride[8];
  __device__ i64 place(i64 i) const {
    i64 at = 0;
    for (i64 d = rank - 1; d >= 0; --d) at += i % size[d] * stride[d], i /= size[d];
    return at;
  }
};

// ---- where the indices of several tensors point: place[k] = element offset in x ----
#ifdef MGE_PLACES
struct Args {
  i64 count;
  i64* place;
  i64* error;
  i64 tensors;
  const int32_t* index[8];
  i64 size[8], stride[8];  // of the axis that each names
  Axes own[8];             // where a tensor's value for position k lies
};
extern "C" __global__ void mge_places(const __grid_constant__ Args a) {
  for (i64 k = thread_number(); k < a.count; k += thread_count()) {
    i64 at = 0;
    for (i64 t = 0; t < a.tensors; ++t) {
      const i64 from = a.own[t].place(k), size = a.size[t];
      i64 v = a.index[t][from];
      if (v < -size || v >= size) report(a.error, v, size, from), v = 0;  // a place that may be touched
      at += (v < 0 ? v + size : v) * a.stride[t];
    }
    a.place[k] = at;
  }
}
#endif

// ---- the next position with the same place, and whether there is one before: equal places are served in order ----
#ifdef MGE_CHAINS
struct Args {
  i64 count;
  const i64* place;
  i64 *next, *first;
};
extern "C" __global__ void mge_chains(const __grid_constant__ Args a) {
  const int lane = threadIdx.x & 31;
  for (i64 k = thread_number() >> 5; k < a.count; k += thread_count() >> 5) {  // a warp looks around a position
    const i64 at = a.place[k];
    i64 next = k + 1 + lane, before = lane;
    while (next < a.count && a.place[next] != at) next += 32;
    while (before < k && a.place[before] != at) before += 32;
    int seen = before < k;
    for (int half = 16; half > 0; half /= 2) {
      const i64 other = __shfl_down_sync(0xffffffffu, next, half);
      next = other < next ? other : next;
      seen |= __shfl_down_sync(0xffffffffu, seen, half);
    }
    if (lane) continue;
    a.next[k] = next < a.count ? next : a.count;
    a.first[k] = !seen;
  }
}
#endif

// ---- y[o, k, i] = x[outer(o) + place[k] + inner(i)] and back ----
#ifdef MGE_MOVES
struct Args {
  i64 total, count, inners;
  T* y;
  const T* v;
  const i64 *place, *next, *first;
  Axes outer, inner;
};
struct At {
  i64 o, k, i;
  __device__ At(const Args& a, i64 n) : o(n / a.inners / a.count), k(n / a.inners % a.count), i(n % a.inners) {}
  __device__ i64 in_x(const Args& a) const { return a.outer.place(o) + a.place[k] + a.inner.place(i); }
};
extern "C" __global__ void mge_index_get(const __grid_constant__ Args a) {
  for (i64 n = thread_number(); n < a.total; n += thread_count()) a.y[n] = a.v[At(a, n).in_x(a)];
}
// Of equal places only the last is read; the others give 0.
extern "C" __global__ void mge_index_get_last(const __grid_constant__ Args a) {
  for (i64 n = thread_number(); n < a.total; n += thread_count()) {
    const At at(a, n);
    a.y[n] = a.next[at.k] < a.count ? T{} : a.v[at.in_x(a)];
  }
}
// The last of equal places stays.
extern "C" __global__ void mge_index_set(const __grid_constant__ Args a) {
  for (i64 n = thread_number(); n < a.total; n += thread_count()) {
    const At at(a, n);
    if (a.next[at.k] >= a.count) a.y[at.in_x(a)] = a.v[n];
  }
}
// The first of equal places adds them all, in their order.
#ifdef MGE_SUM
extern "C" __global__ void mge_index_incr(const __grid_constant__ Args a) {
  for (i64 n = thread_number(); n < a.total; n += thread_count()) {
    const At at(a, n);
    if (!a.first[at.k]) continue;
    T& to = a.y[at.in_x(a)];
    MGE_SUM sum = load(to);
    for (i64 k = at.k; k < a.count; k = a.next[k]) sum += load(a.v[(at.o * a.count + k) * a.inners + at.i]);
    to = cast<T>(static_cast<Compute<T>>(sum));
  }
}
#endif
#endif

// ---- values that must lie in a range ----
#ifdef MGE_CHECKS
struct Args {
  i64 n;
  const T* x;
  int32_t* y;  // wrap_index
  T* same;     // check_range
  i64 *error, size, low;
  double least, most;
};
extern "C" __global__ void mge_wrap_index(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.n; i += thread_count()) {
    i64 k = load_as<i64>(a.x[i]);
    const double real = load_as<double>(a.x[i]);
    if (real != trunc(real))
      report(a.error, 1, std::bit_cast<i64>(real), i), k = 0;
    else if (k < a.low || k >= a.size)
      report(a.error, 0, k, i), k = 0;
    a.y[i] = static_cast<int32_t>(k < 0 ? k + a.size : k);
  }
}
extern "C" __global__ void mge_check_range(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.n; i += thread_count()) {
    const double v = load_as<double>(a.x[i]);
    if (v < a.least || v > a.most) report(a.error, 0, std::bit_cast<i64>(v), i);
    a.same[i] = a.x[i];
  }
}
#endif
