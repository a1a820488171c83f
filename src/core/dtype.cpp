#include "core/dtype.h"

#include "base/error.h"

namespace mge {
namespace {

using C = DTypeClass;
constexpr DTypeInfo kInfo[kDTypeCount] = {
    {"bool", 8, C::Bool},       {"uint8", 8, C::UInt},     {"int8", 8, C::Int},       {"uint16", 16, C::UInt},
    {"int16", 16, C::Int},      {"int32", 32, C::Int},     {"int64", 64, C::Int},     {"float16", 16, C::Float},
    {"bfloat16", 16, C::Float}, {"float32", 32, C::Float}, {"float64", 64, C::Float}, {"complex64", 64, C::Complex},
    {"quint8", 8, C::Quant},    {"qint8", 8, C::Quant},    {"qint16", 16, C::Quant},  {"qint32", 32, C::Quant},
    {"quint4", 4, C::Quant},    {"qint4", 4, C::Quant},    {"qint1", 8, C::Quant},    {"intb1", 8, C::LowBit},
    {"intb2", 8, C::LowBit},    {"intb4", 8, C::LowBit},
};

}  // namespace

const DTypeInfo& dtype_info(DType t) { return kInfo[static_cast<int>(t)]; }

bool find_dtype(std::string_view name, DType* out) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kInfo[i].name == name) {
      *out = static_cast<DType>(i);
      return true;
    }
  return false;
}

DType parse_dtype(std::string_view name) {
  DType t;
  if (find_dtype(name, &t)) return t;
  std::string known;
  for (auto& i : kInfo) known += (known.empty() ? "" : ", ") + std::string(i.name);
  fail(ErrorKind::Type, "dtype: '{}' is not a dtype; known: {}.", name, known);
}

size_t dtype_bytes(DType t, int64_t n) {
  size_t count = static_cast<size_t>(n), bits = dtype_info(t).bits;
  return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;  // in bits the count of 8-byte types would overflow
}

}  // namespace mge
