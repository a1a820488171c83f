// The functions and numbers of cuBLASLt that are used here, declared by us (see kernel/cuda/driver.h); names, order of
// arguments and numbers are those of cublasLt.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mge::cuda {

using LtHandle = struct cublasLtContext*;
using LtDesc = struct cublasLtMatmulDescOpaque*;
using LtLayout = struct cublasLtMatrixLayoutOpaque*;
using LtPreference = struct cublasLtMatmulPreferenceOpaque*;
struct LtAlgo {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

enum : int {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_OP_T = 1,
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // and B, C, D
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};

#define MGE_CUBLASLT(F)                                                                                        \
  F(cublasLtCreate, (LtHandle*))                                                                               \
  F(cublasLtMatmulDescCreate, (LtDesc*, int, int))                                                             \
  F(cublasLtMatmulDescSetAttribute, (LtDesc, int, const void*, size_t))                                        \
  F(cublasLtMatrixLayoutCreate, (LtLayout*, int, uint64_t, uint64_t, int64_t))                                 \
  F(cublasLtMatrixLayoutSetAttribute, (LtLayout, int, const void*, size_t))                                    \
  F(cublasLtMatmulPreferenceCreate, (LtPreference*))                                                           \
  F(cublasLtMatmulPreferenceSetAttribute, (LtPreference, int, const void*, size_t))                            \
  F(cublasLtMatmulPreferenceDestroy, (LtPreference))                                                           \
  F(cublasLtMatmulAlgoGetHeuristic,                                                                            \
    (LtHandle, LtDesc, LtLayout, LtLayout, LtLayout, LtLayout, LtPreference, int, LtHeuristic*, int*))         \
  F(cublasLtMatmul, (LtHandle, LtDesc, const void*, const void*, LtLayout, const void*, LtLayout, const void*, \
                     const void*, LtLayout, void*, LtLayout, const LtAlgo*, void*, size_t, struct CUstream_st*))

struct Lt {
#define MGE_LT_FIELD(name, arguments) int(*name) arguments = nullptr;
  MGE_CUBLASLT(MGE_LT_FIELD)
#undef MGE_LT_FIELD
};
/// Loads the library when first called; an Env error when it is not there.
const Lt& lt();

}  // namespace mge::cuda
