#include "serial/model.h"

namespace mge::serial {

// One row per step: {"pool2d", 1, [](std::vector<NamedAttr>& a) { a.push_back({"ceil", false}); }}.
// Raise .version() of the op in the same change; a step without a row makes older files unreadable.
std::span<const Upgrade> builtin_upgrades() {
  // quantize@1 named dtype, scale and zero point one by one, and dequantize@1 again what its input says.
  static const Upgrade kSteps[] = {
      {"quantize", 1,
       [](std::vector<NamedAttr>& a) {
         QType t;
         for (const NamedAttr& x : a) {  // of another kind in a damaged file: left out, and inference refuses the type
           if (auto* d = std::get_if<DType>(&x.value); d && x.name == "dtype") t.dtype = *d;
           if (auto* f = std::get_if<double>(&x.value); f && x.name == "scale") t.quant.scale = *f;
           if (auto* i = std::get_if<int64_t>(&x.value); i && x.name == "zero_point")
             t.quant.zero_point = static_cast<int32_t>(*i);
         }
         a = {{"type", t}};
       }},
      {"dequantize", 1, [](std::vector<NamedAttr>& a) { a.clear(); }},
  };
  return kSteps;
}

}  // namespace mge::serial
