// Element types. Quantised types carry their scale and zero point in Meta::quant, not here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mge {

enum class DType : uint8_t {
  Bool,
  U8,
  I8,
  U16,
  I16,
  I32,
  I64,
  F16,
  BF16,
  F32,
  F64,
  C64,
  QU8,
  QI8,
  QI16,
  QI32,
  QU4,
  QI4,
  QI1,
  IB1,
  IB2,
  IB4,
};
constexpr int kDTypeCount = 22;

enum class DTypeClass : uint8_t { Bool, UInt, Int, Float, Complex, Quant, LowBit };

struct DTypeInfo {
  std::string_view name;  // "float32": the Python, IR and file spelling
  uint8_t bits;           // of one element in memory; below 8 means packed
  DTypeClass cls;
};

const DTypeInfo& dtype_info(DType t);
inline std::string_view dtype_name(DType t) { return dtype_info(t).name; }
/// Throws a Type error that lists the known names.
DType parse_dtype(std::string_view name);
bool find_dtype(std::string_view name, DType* out);

inline bool is_float(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16 || t == DType::F64; }
inline bool is_int(DType t) { return t >= DType::U8 && t <= DType::I64; }
inline bool is_unsigned(DType t) { return t == DType::U8 || t == DType::U16; }
inline bool is_quant(DType t) { return t >= DType::QU8 && t <= DType::QI1; }
inline bool is_low_bit(DType t) { return dtype_info(t).cls == DTypeClass::LowBit; }

/// Bytes that `n` elements take, rounded up for packed types.
size_t dtype_bytes(DType t, int64_t n);
inline size_t dtype_size(DType t) { return dtype_info(t).bits / 8; }

}  // namespace mge
