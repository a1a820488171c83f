// Batch normalisation over every axis but 1. Statistics have shape [1,C,1,..] with the rank of x; weight, bias and
// given statistics may also come as [C] or [1,C,1,1]. Variance is the biased one.
#pragma once
#include "op/attrs.h"

namespace mge {

struct BatchNormAttrs {
  double eps = 1e-5;
  static constexpr auto fields() { return field_list("eps", &BatchNormAttrs::eps); }
};

/// x [outer, channels, inner] as the kernels see it.
struct BatchNormGeom {
  int64_t outer, channels, inner;
  int64_t count() const { return outer * inner; }
};
BatchNormGeom batch_norm_geom(const Shape& x);
/// [1,C,1,..]: what broadcasts against x.
Shape batch_norm_stat_shape(const Shape& x);
/// Every axis but 1.
Ints batch_norm_axes(const Shape& x);

}  // namespace mge
