// The epilogue of conv2d_raw.h as a pass of its own, for convolutions that cannot apply it on the way. Same steps, same
// bits.
//   epilogue_pass({.bias = b, .act = 1}, n, oc, oh * ow, y);
#pragma once
#include "kernel/simd/conv2d_raw.h"

namespace mge::simd {

/// y [n, oc, pixels] in place.
void epilogue_pass(const Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y);

}  // namespace mge::simd
