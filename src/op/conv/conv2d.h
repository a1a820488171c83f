// conv2d: cross-correlation of x [N,C,H,W] with w [O,C/g,kh,kw] or, grouped, [g,O/g,C/g,kh,kw]; zero padding.
// conv2d_dx and conv2d_dw are its adjoints; conv2d_dx is also the transposed convolution.
#pragma once
#include <string>

#include "op/conv/conv.h"

namespace mge {

using Conv2dAttrs = ConvAttrs<2>;
using Conv2dDxAttrs = ConvDxAttrs<2>;
using Conv2dDwAttrs = ConvDwAttrs<2>;

struct Conv2dFusedAttrs : Conv2dAttrs {
  static constexpr const char* kOp = "conv2d_fused";
  bool has_bias = false, has_scale = false, has_add = false;  // has_scale: scale and shift
  std::string act = "none";                                   // or a unary elementwise op: fusable_act; or prelu
  int64_t tile = 0;                                           // no effect: files may hold it
  double slope = 0;                                           // of prelu: one float for all channels
  static constexpr auto fields() {
    using A = Conv2dFusedAttrs;
    return std::tuple_cat(Conv2dAttrs::fields(),
                          field_list("has_bias", &A::has_bias, "has_scale", &A::has_scale, "has_add", &A::has_add,
                                     "act", &A::act, "tile", &A::tile, "slope", &A::slope));
  }
};

/// Whether the op gives a float for a float: what may follow a convolution inside conv2d_fused.
bool fusable_act(const OpDef& op);

/// The extras of conv2d_fused by role; -1 = absent.
struct Conv2dExtras {
  int bias = -1, scale = -1, shift = -1, add = -1, count = 0;
};
Conv2dExtras conv2d_extras(const Conv2dFusedAttrs& at);

}  // namespace mge
