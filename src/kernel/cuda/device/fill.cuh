// T: an unsigned integer of the element's size. One value everywhere.
#pragma once
#include "kernel/cuda/device/types.cuh"
struct Args {
  i64 n;
  T* out;
  u64 value;
};
extern "C" __global__ void mge_fill(const __grid_constant__ Args a) {
  for (i64 i = thread_number(); i < a.n; i += thread_count()) a.out[i] = static_cast<T>(a.value);
}
