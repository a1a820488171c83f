// Layer normalisation over the last n_axes axes; mean and rstd keep those axes with size 1.
#pragma once
#include "op/attrs.h"

namespace mge {

struct LayerNormAttrs {
  int64_t n_axes = 1;
  double eps = 1e-5;
  static constexpr auto fields() { return field_list("n_axes", &LayerNormAttrs::n_axes, "eps", &LayerNormAttrs::eps); }
};

struct LayerNormBwdAttrs {
  int64_t n_axes = 1;
  static constexpr auto fields() { return field_list("n_axes", &LayerNormBwdAttrs::n_axes); }
};

/// x as [rows, size]; every row is normalised on its own.
struct LayerNormGeom {
  int64_t rows = 1, size = 1;
};
LayerNormGeom layer_norm_geom(const Shape& x, int64_t n_axes);

}  // namespace mge
