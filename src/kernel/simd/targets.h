// Which instruction sets the kernels of this folder are compiled for. Include before <hwy/highway.h>, in every file
// that uses it.
//
// Three copies on x86: SSE4 (baseline, any CPU since 2010), AVX2+FMA, AVX-512. One (NEON) on Arm. Fewer targets keep
// compile time and binary size down; vector lengths unknown at compile time (SVE, RVV) do not fit kernels that hold
// arrays of registers.
#pragma once

// MGE_ISAS (CMake) leaves out some of the three; the weakest that stays is then what a CPU must have (register.cpp).
#define HWY_WANT_SSE4 1
#ifdef MGE_SOME_ISAS
#define MGE_NO_ISAS ((MGE_ISA_SSE4 ? 0 : HWY_SSE4) | (MGE_ISA_AVX2 ? 0 : HWY_AVX2) | (MGE_ISA_AVX512 ? 0 : HWY_AVX3))
#define HWY_BASELINE_TARGETS (MGE_ISA_SSE4 ? HWY_SSE4 : MGE_ISA_AVX2 ? HWY_AVX2 : HWY_AVX3)
#else
#define MGE_NO_ISAS 0
#endif
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | MGE_NO_ISAS)
