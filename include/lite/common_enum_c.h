/* Enums shared by the C and the C++ API. The numbers are part of the ABI. */
#ifndef LITE_COMMON_ENUM_C_H
#define LITE_COMMON_ENUM_C_H

/* A caller in C may pass any number: with a base type C++ may look at it before refusing it. */
#ifdef __cplusplus
#define LITE_ENUM_BASE : int
extern "C" {
#else
#define LITE_ENUM_BASE
#endif

/* The initial level is ERROR. */
typedef enum LiteLogLevel LITE_ENUM_BASE { DEBUG = 0, INFO = 1, WARN = 2, ERROR = 3 } LiteLogLevel;

typedef enum ErrorCode LITE_ENUM_BASE { OK = 0, LITE_INTERNAL_ERROR = 1, LITE_UNKNOWN_ERROR = 2 } ErrorCode;

typedef enum LiteBackend LITE_ENUM_BASE { LITE_DEFAULT = 0 } LiteBackend;

typedef enum LiteDeviceType LITE_ENUM_BASE {
  LITE_CPU = 0,
  LITE_CUDA = 1,
  LITE_ATLAS = 3,
  LITE_NPU = 4,
  LITE_CAMBRICON = 5,
  LITE_DEVICE_DEFAULT = 7 /* as the model says */
} LiteDeviceType;

typedef enum LiteDataType LITE_ENUM_BASE {
  LITE_FLOAT = 0,
  LITE_HALF = 1,
  LITE_INT = 2,
  LITE_INT16 = 3,
  LITE_INT8 = 4,
  LITE_UINT8 = 5,
  LITE_UINT = 6,
  LITE_UINT16 = 7,
  LITE_INT64 = 8,
  /* Ours, for models whose inputs or outputs have these types. */
  LITE_FLOAT64 = 100,
  LITE_BOOL = 101,
  LITE_BFLOAT16 = 102,
  LITE_COMPLEX64 = 103
} LiteDataType;

typedef enum LiteTensorPhase LITE_ENUM_BASE { LITE_IO = 0, LITE_INPUT = 1, LITE_OUTPUT = 2 } LiteTensorPhase;

/* LITE_IO_SHAPE on an output: only its layout is filled, no data is copied. */
typedef enum LiteIOType LITE_ENUM_BASE { LITE_IO_VALUE = 0, LITE_IO_SHAPE = 1 } LiteIOType;

/* Bit flags. */
typedef enum LiteAlgoSelectStrategy LITE_ENUM_BASE {
  LITE_ALGO_HEURISTIC = 1,
  LITE_ALGO_PROFILE = 2,
  LITE_ALGO_REPRODUCIBLE = 4,
  LITE_ALGO_OPTIMIZED = 8
} LiteAlgoSelectStrategy;

typedef enum LiteOpenCLCacheCompatLevel LITE_ENUM_BASE {
  LITE_NOT_COMPAT = 0,
  LITE_SERIES_COMPAT = 1,
  LITE_VENDOR_COMPAT = 2,
  LITE_CACHE_COMPAT_LEVEL_CNT = 3
} LiteOpenCLCacheCompatLevel;

#ifdef __cplusplus
}

inline LiteAlgoSelectStrategy operator|(LiteAlgoSelectStrategy a, LiteAlgoSelectStrategy b) {
  return static_cast<LiteAlgoSelectStrategy>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
#endif

#endif
