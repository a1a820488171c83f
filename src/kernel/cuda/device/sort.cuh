// A stable order of rows: a thread counts what comes before its element. Keys are those of kernel/sort_key.h: NaN last,
// -0 equal to 0; a descending order is that of the inverted key.
#pragma once
struct Args {
  i64 total, len, inner, descending;
  const T* x;
  T* y;
  int32_t* place;
};
__device__ inline uint32_t sort_key(float x) {
  if (x != x) return 0xFFFFFFFFu;
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline u64 sort_key(double x) {
  if (x != x) return ~0ull;
  const u64 bits = std::bit_cast<u64>(x + 0.0);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ inline u64 sort_key(i64 x) { return static_cast<u64>(x) ^ 1ull << 63; }
__device__ inline uint32_t sort_key(bool x) { return x; }

// Elements of the row that come before element `me`.
template <class K>
__device__ inline i64 rank_of(const Args& a, i64 first, i64 me, K mine) {
  i64 before = 0;
  for (i64 j = 0; j < a.len; ++j) {
    const K k = sort_key(load(a.x[first + j * a.inner]));
    before += k == mine ? j < me : a.descending ? k > mine : k < mine;
  }
  return before;
}
extern "C" __global__ void mge_sort(const __grid_constant__ Args a) {
  for (i64 t = thread_number(); t < a.total; t += thread_count()) {
    const i64 me = t / a.inner % a.len, row = t / a.inner / a.len * a.inner + t % a.inner;
    const i64 first = row / a.inner * a.len * a.inner + row % a.inner;
    const auto mine = sort_key(load(a.x[t]));
    const i64 at = rank_of(a, first, me, mine);
    const i64 to = (row / a.inner * a.len + at) * a.inner + row % a.inner;
    a.y[to] = a.x[t];
    a.place[to] = static_cast<int32_t>(me);
  }
}
