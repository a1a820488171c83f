// What is known of a tensor before it is computed.
#pragma once
#include <string>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace mge {

/// Quantisation of an element type: real = scale * (q - zero_point).
struct Quant {
  double scale = 0;  // 0 = not quantised
  int32_t zero_point = 0;
  bool operator==(const Quant&) const = default;
};

struct Meta {
  Shape shape;
  DType dtype = DType::F32;
  const CompNode* cn = nullptr;  // null: the default comp node
  Quant quant;

  bool same_type(const Meta& o) const { return dtype == o.dtype && shape == o.shape; }
  size_t bytes() const { return dtype_bytes(dtype, shape.numel()); }
  uint64_t hash(uint64_t h) const { return shape.hash(hash_mix(h, static_cast<uint64_t>(dtype))); }
  std::string str() const { return std::string(dtype_name(dtype)) + shape.str(); }  // "float32[2,3]"
};

}  // namespace mge
