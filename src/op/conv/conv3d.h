// conv3d: cross-correlation of x [N,C,D,H,W] with w [O,C/g,kd,kh,kw] or, grouped, [g,O/g,C/g,kd,kh,kw]; zero padding.
// conv3d_dx and conv3d_dw are its adjoints; conv3d_dx is also the transposed convolution.
#pragma once
#include "op/conv/conv.h"

namespace mge {

using Conv3dAttrs = ConvAttrs<3>;
using Conv3dDxAttrs = ConvDxAttrs<3>;
using Conv3dDwAttrs = ConvDwAttrs<3>;

}  // namespace mge
