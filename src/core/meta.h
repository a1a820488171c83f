// What is known of a tensor before it is computed.
#pragma once
#include <string>

#include "core/device.h"
#include "core/quant.h"

namespace mge {

struct Meta {
  Shape shape;
  DType dtype = DType::F32;
  const CompNode* cn = nullptr;  // null: the default comp node
  Quant quant;

  bool same_type(const Meta& o) const { return dtype == o.dtype && shape == o.shape && quant == o.quant; }
  size_t bytes() const { return dtype_bytes(dtype, shape.numel()); }
  uint64_t hash(uint64_t h) const {
    h = shape.hash(hash_mix(h, static_cast<uint64_t>(dtype)));
    return quant.scale != 0 ? quant.hash(h) : h;
  }
  QType qtype() const { return {dtype, quant}; }
  std::string str() const { return std::string(dtype_name(dtype)) + shape.str(); }  // "float32[2,3]"
};

}  // namespace mge
