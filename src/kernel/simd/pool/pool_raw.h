// float32 2-d pooling on plain NCHW memory and on channels-last memory, with adjoints. Raw pointers, no checks.
//
//   max_pool2d_fwd({.planes = n * c, .h = 28, .w = 28, .oh = 14, .ow = 14, .kh = 2, .kw = 2, .sh = 2, .sw = 2}, x, y);
//
// x [planes,h,w], y [planes,oh,ow]; the caller has computed oh and ow. Outputs are overwritten. Planes are independent,
// so results do not depend on threads. A window that lies wholly in the padding gives -inf (max) or 0 (average).
#pragma once

#include <cstdint>

namespace mge::simd {

struct Pool2dGeom {
  int64_t planes = 1, h = 1, w = 1, oh = 1, ow = 1;
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, ph = 0, pw = 0;
};

// The largest of each window; NaN if the window holds one. Padding counts as -inf.
void max_pool2d_fwd(const Pool2dGeom& geom, const float* x, float* y);
// y as computed by max_pool2d_fwd. A window's gradient goes to its first maximum (or first NaN) in row-major order.
void max_pool2d_bwd(const Pool2dGeom& geom, const float* x, const float* y, const float* dy, float* dx);

// The mean of each window: over kh * kw when `count_include_pad`, else over the pixels inside the image.
void avg_pool2d_fwd(const Pool2dGeom& geom, const float* x, float* y, bool count_include_pad);
void avg_pool2d_bwd(const Pool2dGeom& geom, const float* dy, float* dx, bool count_include_pad);

// The same on channels-last memory, x [n,h,w,c] with planes == n * c: same order of joins and sums, same bits.
void max_pool2d_fwd_last(const Pool2dGeom& geom, int64_t channels, const float* x, float* y);
// Rows [first, last) of all the images' outputs, on this thread.
void max_pool2d_last_rows(const Pool2dGeom& geom, int64_t channels, const float* x, float* y, int64_t first,
                          int64_t last);
void max_pool2d_bwd_last(const Pool2dGeom& geom, int64_t channels, const float* x, const float* y, const float* dy,
                         float* dx);
void avg_pool2d_fwd_last(const Pool2dGeom& geom, int64_t channels, const float* x, float* y, bool count_include_pad);
void avg_pool2d_bwd_last(const Pool2dGeom& geom, int64_t channels, const float* dy, float* dx, bool count_include_pad);

}  // namespace mge::simd
