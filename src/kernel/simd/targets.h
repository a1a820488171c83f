// Which instruction sets the kernels of this folder are compiled for. Include before <hwy/highway.h>, in every file
// that uses it.
//
// Three copies on x86: SSE4 (baseline, any CPU since 2010), AVX2+FMA, AVX-512. One (NEON) on Arm. Fewer targets keep
// compile time and binary size down; vector lengths unknown at compile time (SVE, RVV) do not fit kernels that hold
// arrays of registers.
#pragma once

#define HWY_WANT_SSE4 1
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
