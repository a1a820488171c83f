/* What a library of custom operators and the engine say to each other: plain C, so neither needs the other's symbols or
 * C++ library. custom.h writes the library's side; nobody else has to look at this file.
 *
 * Texts are lines of fields divided by tabs, their parts percent-encoded ("%09" is a tab).
 */
#ifndef MEGBRAIN_CUSTOM_ABI_H
#define MEGBRAIN_CUSTOM_ABI_H
#include <stddef.h>
#include <stdint.h>

#define MGE_CUSTOM_ABI 1
#define MGE_CUSTOM_MAX_NDIM 8
#define MGE_CUSTOM_ENTRY "mge_custom_library_v1"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MgeCustomTensor {
  void* data;        /* null while results are inferred */
  char dtype[16];    /* "float32" */
  char device[16];   /* "x86" */
  int32_t ndim;
  int64_t shape[MGE_CUSTOM_MAX_NDIM];
  float scale;       /* of quantised dtypes; 0 otherwise */
  int32_t zero_point;
} MgeCustomTensor;

typedef struct MgeCustomLibrary {
  int32_t abi;            /* MGE_CUSTOM_ABI of the header it was compiled with */
  int32_t op_version;     /* CUSTOM_OP_VERSION */
  int32_t n_ops;
  const char* (*name)(int32_t op);
  /* What the op takes and gives: lines "op", "infer", "compute", "in", "out", "param". */
  const char* (*describe)(int32_t op);
  /* Why the registration is wrong; empty: it is not. */
  const char* (*fault)(int32_t op);
  /* Fill `out`. Not 0: failed, with a text in `error`. `params`: "name=kind:value" divided by ';'. */
  int32_t (*infer)(int32_t op, const char* params, const MgeCustomTensor* in, int32_t n_in, MgeCustomTensor* out,
                   int32_t n_out, char* error, size_t error_bytes);
  int32_t (*compute)(int32_t op, const char* params, const MgeCustomTensor* in, int32_t n_in, MgeCustomTensor* out,
                     int32_t n_out, char* error, size_t error_bytes);
} MgeCustomLibrary;

#ifdef __cplusplus
}
#endif
#endif
