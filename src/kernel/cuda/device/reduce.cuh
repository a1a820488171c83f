// Reductions in the order of kernel/reduce_order.h, hence with its bits: a warp is the 32 lanes of a row block, a thread
// the rows of a column block, and blocks are folded in pairs. The text before this header says
//   A (what is summed), O (what is stored), combine(x, y, out), kIdentity, and struct Args with
//   A* part; O* out; i64 outer, len, width, blocks; double count (0: no mean); and what element(a, at) needs: A at `at`.
#pragma once

__device__ inline A joined(A x, A y) {
  A out;
  combine(x, y, out);
  return out;
}
__device__ inline void put(const Args& a, i64 at, A v) {
  if (a.part) {
    a.part[at] = v;
    return;
  }
  if (a.mean) v = v / static_cast<A>(a.count);
  a.out[at] = cast<O>(v);
}

// x [outer, len] -> [outer, blocks] by blocks of 1024
__device__ inline void reduce_rows(const Args& a) {
  const int lane = threadIdx.x & 31;
  const i64 all = a.outer * a.blocks;
  for (i64 w = thread_number() >> 5; w < all; w += thread_count() >> 5) {
    const i64 row = w / a.blocks, from = (w - row * a.blocks) * 1024, left = a.len - from, n = left < 1024 ? left : 1024;
    A v = kIdentity;
    for (i64 i = lane; i < n; i += 32) v = joined(v, element_at(a, row * a.len + from + i));
    for (int half = 16; half > 0; half /= 2) v = joined(v, __shfl_down_sync(0xffffffffu, v, half));
    if (lane == 0) put(a, w, v);
  }
}

// x [outer, len, width] -> [outer, blocks, width] by blocks of 64 rows
__device__ inline void reduce_columns(const Args& a) {
  const i64 all = a.outer * a.blocks * a.width;
  for (i64 t = thread_number(); t < all; t += thread_count()) {
    const i64 c = t % a.width, ob = t / a.width, o = ob / a.blocks, from = (ob - o * a.blocks) * 64;
    const i64 left = a.len - from, n = left < 64 ? left : 64;
    const i64 at = (o * a.len + from) * a.width + c;
    A v = kIdentity;
    if (n > 0) v = element_at(a, at);
    // Eight are read before the first is used: one after the other they would wait for memory each time.
    i64 i = 1;
    for (; i + 8 <= n; i += 8) {
      A e[8];
#pragma unroll
      for (int u = 0; u < 8; ++u) e[u] = element_at(a, at + (i + u) * a.width);
#pragma unroll
      for (int u = 0; u < 8; ++u) v = joined(v, e[u]);
    }
    for (; i < n; ++i) v = joined(v, element_at(a, at + i * a.width));
    put(a, t, v);
  }
}

// parts [outer, len, width] -> [outer, blocks, width]: 64 at a time, a whole subtree of the pairs
__device__ inline void reduce_parts(const Args& a) {
  const i64 all = a.outer * a.blocks * a.width;
  for (i64 t = thread_number(); t < all; t += thread_count()) {
    const i64 c = t % a.width, ob = t / a.width, o = ob / a.blocks, from = (ob - o * a.blocks) * 64;
    const i64 left = a.len - from, n = left < 64 ? left : 64;
    A e[64];
#pragma unroll
    for (int i = 0; i < 64; ++i)
      if (i < n) e[i] = element_at(a, (o * a.len + from + i) * a.width + c);
#pragma unroll
    for (int half = 1; half < 64; half *= 2)
#pragma unroll
      for (int i = 0; i < 64; i += 2 * half)
        if (i + half < n) e[i] = joined(e[i], e[i + half]);
    put(a, t, e[0]);
  }
}
