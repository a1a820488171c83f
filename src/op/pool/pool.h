// Pooling over x [N,C,H,W]. Output sizes are floored. In max pooling the first maximum of a window, in row-major order,
// is the one that counts; padding never wins.
#pragma once
#include "op/attrs.h"

namespace mge {

struct PoolAttrs {
  Ints kernel{2, 2}, stride{}, pad{0, 0};  // empty stride = kernel
  static constexpr auto fields() {
    return field_list("kernel", &PoolAttrs::kernel, "stride", &PoolAttrs::stride, "pad", &PoolAttrs::pad);
  }
};

struct AvgPoolAttrs {
  Ints kernel{2, 2}, stride{}, pad{0, 0};
  bool include_pad = false;  // divide by the whole window, padding included
  static constexpr auto fields() {
    using A = AvgPoolAttrs;
    return field_list("kernel", &A::kernel, "stride", &A::stride, "pad", &A::pad, "include_pad", &A::include_pad);
  }
};

struct AvgPoolBwdAttrs {
  Ints kernel{2, 2}, stride{}, pad{0, 0};
  bool include_pad = false;
  Ints x_shape{};
  static constexpr auto fields() {
    using A = AvgPoolBwdAttrs;
    return field_list("kernel", &A::kernel, "stride", &A::stride, "pad", &A::pad, "include_pad", &A::include_pad,
                      "x_shape", &A::x_shape);
  }
};

struct PoolGeom {
  int64_t n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw;
};
/// Of an x shape that infer has accepted. A = any of the three attrs structs.
template <class A>
PoolGeom pool_geom(const A& at, const Shape& x);

}  // namespace mge
