// matmul: [..,M,K] x [..,K,N] (+ [N]) -> [..,M,N], batch dimensions broadcast; ta/tb transpose the last two axes first.
#pragma once
#include "op/attrs.h"

namespace mge {

struct MatmulAttrs {
  bool ta = false, tb = false;
  static constexpr auto fields() { return field_list("ta", &MatmulAttrs::ta, "tb", &MatmulAttrs::tb); }
};

struct MatmulGeom {
  int64_t m, n, k;
  Shape batch;  // broadcast batch dims
};
/// Of inputs that infer has accepted.
MatmulGeom matmul_geom(const MatmulAttrs& at, const Shape& a, const Shape& b);

}  // namespace mge
