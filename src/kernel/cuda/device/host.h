// A GPU for the host's compiler: the emulator (kernel/cuda/emulate.h) puts this before the text of a kernel. Threads
// run one after the other, or as fibers of a block where they meet.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <bit>
#include <vector>
#if MGE_FIBERS
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __shared__ static
#define __grid_constant__

struct Place {
  unsigned x;
};
static thread_local Place threadIdx, blockIdx, blockDim, gridDim;

template <class T>
T atomicCAS(T* p, T expected, T wanted) {
  T old = *p;
  if (old == expected) *p = wanted;
  return old;
}
template <class T>
T atomicAdd(T* p, T v) {
  T old = *p;
  *p = old + v;
  return old;
}

#if MGE_FIBERS
static thread_local ucontext_t t_scheduler;
static thread_local std::vector<ucontext_t>* t_fibers;
static thread_local std::vector<char>* t_done;
static thread_local std::vector<uint64_t>* t_slots;
static thread_local void (*t_body)(void*);
static thread_local void* t_data;

static void pause_thread() { swapcontext(&(*t_fibers)[threadIdx.x], &t_scheduler); }
static void __syncthreads() { pause_thread(); }
template <class T>
T __shfl_down_sync(unsigned, T v, int by) {
  const unsigned me = threadIdx.x;
  memcpy(&(*t_slots)[me], &v, sizeof v);
  pause_thread();  // all have written
  T r = v;
  if ((me & 31) + by < 32) memcpy(&r, &(*t_slots)[me + by], sizeof r);
  pause_thread();  // all have read
  return r;
}
template <class T>
T __shfl_sync(unsigned, T v, int lane) {
  memcpy(&(*t_slots)[threadIdx.x], &v, sizeof v);
  pause_thread();
  T r;
  memcpy(&r, &(*t_slots)[(threadIdx.x & ~31u) + lane], sizeof r);
  pause_thread();
  return r;
}
static void fiber_main() {
  t_body(t_data);
  (*t_done)[threadIdx.x] = 1;
  for (;;) pause_thread();
}
template <class F>
void run_block(unsigned threads, F& body) {
  std::vector<ucontext_t> fibers(threads);
  std::vector<char> done(threads), stacks(size_t{threads} << 15);
  std::vector<uint64_t> slots(threads);
  t_fibers = &fibers, t_done = &done, t_slots = &slots;
  t_body = [](void* p) { (*static_cast<F*>(p))(); }, t_data = &body;
  for (unsigned i = 0; i < threads; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks.data() + (size_t{i} << 15);
    fibers[i].uc_stack.ss_size = 1 << 15;
    fibers[i].uc_link = &t_scheduler;
    makecontext(&fibers[i], fiber_main, 0);
  }
  for (bool alive = true; alive;) {
    alive = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (done[i]) continue;
      threadIdx.x = i;
      swapcontext(&t_scheduler, &fibers[i]);
      alive |= !done[i];
    }
  }
}
#else
template <class F>
void run_block(unsigned threads, F& body) {
  for (unsigned i = 0; i < threads; ++i) threadIdx.x = i, body();
}
#endif

template <class F>
void run_grid(unsigned blocks, unsigned threads, F body) {
  blockDim.x = threads, gridDim.x = blocks;
  for (unsigned b = 0; b < blocks; ++b) blockIdx.x = b, run_block(threads, body);
}
