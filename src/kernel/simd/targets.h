// Which instruction sets the kernels of this folder are compiled for. Include before <hwy/highway.h>, in every file
// that uses it.
//
// Three copies on x86: SSE4 (baseline, any CPU since 2010), AVX2+FMA, AVX-512. One (NEON) on Arm, one elsewhere: the
// widest that the compiler was told of, else scalars of 128 bits. Fewer targets keep compile time and binary size down;
// vector lengths unknown at compile time (SVE, RVV) do not fit kernels that hold arrays of registers. Highway would add
// copies of NEON for CPUs that have AES or bfloat16, instructions that no kernel here has: the same code again.
#pragma once

// MGE_ISAS (CMake) leaves out some of the three; the weakest that stays is then what a CPU must have (register.cpp).
#define HWY_WANT_SSE4 1
#ifdef MGE_SOME_ISAS
#define MGE_NO_ISAS ((MGE_ISA_SSE4 ? 0 : HWY_SSE4) | (MGE_ISA_AVX2 ? 0 : HWY_AVX2) | (MGE_ISA_AVX512 ? 0 : HWY_AVX3))
#define HWY_BASELINE_TARGETS (MGE_ISA_SSE4 ? HWY_SSE4 : MGE_ISA_AVX2 ? HWY_AVX2 : HWY_AVX3)
#else
#define MGE_NO_ISAS 0
#endif
#if defined(__aarch64__) && !defined(__ARM_FEATURE_AES)
#define MGE_DISABLED_NEON (HWY_NEON | HWY_NEON_BF16)
#else
#define MGE_DISABLED_NEON 0
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | MGE_DISABLED_NEON | MGE_NO_ISAS)
#define HWY_BROKEN_EMU128 0  // Highway mistrusts old compilers of RISC-V; tests/cpp/kernel are content

// 32 vector registers: tiles are twice as large. Ask inside the code of one target.
#define MGE_REGISTERS_32 (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64)
