// conv3d: cross-correlation of x [N,C,D,H,W] with w [O,C/g,kd,kh,kw] or, grouped, [g,O/g,C/g,kd,kh,kw]; zero padding.
// conv3d_dx and conv3d_dw are its adjoints; conv3d_dx is also the transposed convolution.
#pragma once
#include "op/attrs.h"

namespace mge {

struct Conv3dAttrs {
  Ints stride{1, 1, 1}, pad{0, 0, 0}, dilate{1, 1, 1};
  int64_t groups = 1;
  static constexpr auto fields() {
    using A = Conv3dAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups);
  }
};

struct Conv3dDxAttrs {
  Ints stride{1, 1, 1}, pad{0, 0, 0}, dilate{1, 1, 1};
  int64_t groups = 1;
  Ints x_shape{};
  static constexpr auto fields() {
    using A = Conv3dDxAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups, "x_shape",
                      &A::x_shape);
  }
};

struct Conv3dDwAttrs {
  Ints stride{1, 1, 1}, pad{0, 0, 0}, dilate{1, 1, 1};
  int64_t groups = 1;
  Ints w_shape{};
  static constexpr auto fields() {
    using A = Conv3dDwAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups, "w_shape",
                      &A::w_shape);
  }
};

/// All sizes of one convolution; the three spatial axes are d, h, w. c and o count all groups.
struct Conv3dGeom {
  int64_t n, c, o, groups;
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilate[3];
  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  double flops() const;
};

/// Of shapes that infer has accepted: x and w as conv3d takes them. A = any of the three attrs structs.
template <class A>
Conv3dGeom conv3d_geom(const A& at, const Shape& x, const Shape& w);

}  // namespace mge
