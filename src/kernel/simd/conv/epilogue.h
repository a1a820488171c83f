// The epilogue of conv2d_raw.h as a pass of its own, for convolutions that cannot apply it on the way. Same steps, same
// bits.
//   epilogue_pass({.bias = b, .act = 1}, n, oc, oh * ow, y);
#pragma once
#include "kernel/simd/conv/conv2d_raw.h"

namespace mge::simd {

/// y [n, oc, pixels] in place.
void epilogue_pass(const Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y);
/// Pixels [begin, end) of y [pixels, oc], on this thread: for kernels that have just written them.
void epilogue_last(const Epilogue& e, int64_t begin, int64_t end, int64_t oc, float* y);
/// y [pixels, oc] in place: channels-last images, `pixels` of all of them together.
void epilogue_pass_last(const Epilogue& e, int64_t pixels, int64_t oc, float* y);
/// to[i] = parts[i] + parts[n + i] + …, added in this order; `to` may be `parts`.
void add_parts(const float* parts, int64_t n, int64_t count, float* to);

}  // namespace mge::simd
