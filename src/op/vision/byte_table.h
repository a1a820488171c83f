// byte_table: what any chain of elementwise ops makes of the bytes of an image, looked up. y = table[c][x], c being the
// position along the channel axis, or 0 where the table has one row; with to_nchw an image [N,H,W,C] comes out as
// [N,C,H,W]. pass/fuse_preprocess writes the table with the kernels of the chain, so the bits are those of the chain.
#pragma once
#include "op/attrs.h"

namespace mge {

struct ByteTableAttrs {
  int64_t axis = -1;     // of channels in x; has no meaning with one row
  bool to_nchw = false;  // x [N,H,W,C] gives y [N,C,H,W]
  static constexpr auto fields() {
    return field_list("axis", &ByteTableAttrs::axis, "to_nchw", &ByteTableAttrs::to_nchw);
  }
};

}  // namespace mge
