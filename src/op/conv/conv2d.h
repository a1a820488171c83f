// conv2d: cross-correlation of x [N,C,H,W] with w [O,C/g,kh,kw] or, grouped, [g,O/g,C/g,kh,kw]; zero padding.
// conv2d_dx and conv2d_dw are its adjoints; conv2d_dx is also the transposed convolution.
#pragma once
#include <string>

#include "op/attrs.h"

namespace mge {

struct Conv2dAttrs {
  Ints stride{1, 1}, pad{0, 0}, dilate{1, 1};
  int64_t groups = 1;
  static constexpr auto fields() {
    using A = Conv2dAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups);
  }
};

struct Conv2dDxAttrs {
  Ints stride{1, 1}, pad{0, 0}, dilate{1, 1};
  int64_t groups = 1;
  Ints x_shape{};
  static constexpr auto fields() {
    using A = Conv2dDxAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups, "x_shape",
                      &A::x_shape);
  }
};

struct Conv2dDwAttrs {
  Ints stride{1, 1}, pad{0, 0}, dilate{1, 1};
  int64_t groups = 1;
  Ints w_shape{};
  static constexpr auto fields() {
    using A = Conv2dDwAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups, "w_shape",
                      &A::w_shape);
  }
};

struct Conv2dFusedAttrs {
  Ints stride{1, 1}, pad{0, 0}, dilate{1, 1};
  int64_t groups = 1;
  bool has_bias = false, has_scale = false, has_add = false;  // has_scale: scale and shift
  std::string act = "none";                                   // none, relu
  static constexpr auto fields() {
    using A = Conv2dFusedAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups, "has_bias",
                      &A::has_bias, "has_scale", &A::has_scale, "has_add", &A::has_add, "act", &A::act);
  }
};

/// All sizes of one convolution. c and o count all groups; a grouped weight is [o, c/groups, kh, kw] in memory.
struct Conv2dGeom {
  int64_t n, c, h, w, o, kh, kw, oh, ow;
  int64_t sh, sw, ph, pw, dh, dw, groups;
  bool operator==(const Conv2dGeom&) const = default;
  double flops() const;
};

/// Of shapes that infer has accepted: x and w as conv2d takes them. A = any of the four attrs structs.
template <class A>
Conv2dGeom conv2d_geom(const A& at, const Shape& x, const Shape& w);

/// The extras of conv2d_fused by role; -1 = absent.
struct Conv2dExtras {
  int bias = -1, scale = -1, shift = -1, add = -1, count = 0;
};
Conv2dExtras conv2d_extras(const Conv2dFusedAttrs& at);

}  // namespace mge
