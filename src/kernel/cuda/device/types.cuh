// What generated kernels are written in: storage types of the dtypes, the types they are computed in, conversions by
// the rules of typecvt (kernel/row_io.cpp), and errors. Compiled by NVRTC, and by the host's compiler in tests.
#pragma once
#include "core/half.h"

using namespace mge;
typedef long long i64;
typedef unsigned long long u64;
struct Flag {  // bool: memory from outside may hold other bytes than 0 and 1
  uint8_t bits;
};

// ---- storage to compute type ----
template <class T>
struct ComputeOf {
  using type = i64;
};
template <>
struct ComputeOf<Flag> {
  using type = bool;
};
template <>
struct ComputeOf<Half> {
  using type = float;
};
template <>
struct ComputeOf<BFloat> {
  using type = float;
};
template <>
struct ComputeOf<float> {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

template <class T>
__device__ inline Compute<T> load(T v) {
  return static_cast<Compute<T>>(v);
}
__device__ inline bool load(Flag v) { return v.bits != 0; }

// ---- compute type to storage, of the same kind ----
template <class T>
struct Store {
  template <class C>
  __device__ static T from(C v) {
    return static_cast<T>(v);
  }
};
template <>
struct Store<Flag> {
  __device__ static Flag from(bool v) { return Flag{v}; }
};

// ---- between compute types; `kWide`: the result is int64, else it has at most 32 bits ----
template <class To, bool kWide>
struct Convert {
  template <class C>
  __device__ static To from(C v) {
    return static_cast<To>(v);
  }
};
template <bool kWide>
struct Convert<bool, kWide> {
  template <class C>
  __device__ static bool from(C v) {
    return v != C(0);
  }
};
template <bool kWide>
struct Convert<i64, kWide> {
  __device__ static i64 from(i64 v) { return v; }
  __device__ static i64 from(bool v) { return v; }
  template <class F>
  __device__ static i64 real(F x) {
    const F hi = kWide ? F(0x1p63) : F(0x1p31);
    const i64 max = kWide ? 0x7fffffffffffffffll : 0x7fffffffll, min = -max - 1;
    return x >= hi ? max : x < -hi ? min : x == x ? static_cast<i64>(x) : 0;
  }
  __device__ static i64 from(float v) { return real(v); }
  __device__ static i64 from(double v) { return real(v); }
};
template <class T>
struct IsWide {
  static constexpr bool value = false;
};
template <>
struct IsWide<int64_t> {
  static constexpr bool value = true;
};
template <>
struct IsWide<Flag> {
  static constexpr bool value = true;
};

/// A computed value as an element of storage type T.
template <class T, class C>
__device__ inline T cast(C v) {
  return Store<T>::from(Convert<Compute<T>, IsWide<T>::value>::from(v));
}
/// An element as another compute type, as kernel/row_io.h loads it.
template <class C, class T>
__device__ inline C load_as(T v) {
  return Convert<C, true>::from(load(v));
}

#define kInfinity (std::bit_cast<float>(0x7f800000u))

/// Several elements that are moved at once.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T v[n];
};

/// The position of a thread in its grid, and the number of threads.
__device__ inline i64 thread_number() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline i64 thread_count() { return static_cast<i64>(gridDim.x) * blockDim.x; }

/// The first error of a launch is the one that is told.
__device__ inline void report(i64* words, i64 a, i64 b, i64 c) {
  if (!atomicCAS(reinterpret_cast<u64*>(words), 0ull, 1ull)) words[1] = a, words[2] = b, words[3] = c;
}
